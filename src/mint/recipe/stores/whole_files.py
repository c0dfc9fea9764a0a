"""Files that are there whole or not at all, whoever reads them and whenever we are killed."""

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its place and move it there at once; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
