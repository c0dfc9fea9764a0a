"""Reading pages: code blocks, links, headings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

PLACES = ("*.md", "docs/**/*.md", "benchmarks/*.md", "demos/*.md")


def pages() -> list[Path]:
    """Every page of the project, as a path below its root."""
    found = [path for place in PLACES for path in ROOT.glob(place)]
    return sorted(path.relative_to(ROOT) for path in found)


def counterpart(page: Path) -> Path | None:
    """The same page in the other language, whether it exists or not; None for a page that has one
    language only."""
    renames = {"README.md": "README.zh.md", "README.zh.md": "README.md"}
    if page.name in renames and page.parent in (Path(), Path("demos")):
        return page.with_name(renames[page.name])
    others = {"en": "zh", "zh": "en"}
    if page.parent.parent == Path("docs") and page.parent.name in others:
        return Path("docs", others[page.parent.name], page.name)
    return None


def is_chinese(page: Path) -> bool:
    return page.parent == Path("docs/zh") or page.name == "README.zh.md"


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is where its code begins, counted from 1."""

    line: int
    code: str


def blocks(page: Path, language: str) -> Iterator[Block]:
    text = (ROOT / page).read_text()
    for found in _BLOCK.finditer(text):
        if found[1] == language:
            yield Block(text.count("\n", 0, found.start()) + 2, found[2])


def code(page: Path) -> list[str]:
    """All fenced blocks, with their language."""
    return [found[0] for found in _BLOCK.finditer((ROOT / page).read_text())]


def as_script(page: Path) -> str:
    """The page's Python blocks as one script, each at the line where it stands on the page, so that
    a traceback points there."""
    lines: list[str] = []
    for block in blocks(page, "python"):
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.code.splitlines()
    return "\n".join(lines) + "\n"


def links(page: Path) -> list[str]:
    return _LINK.findall(_BLOCK.sub("", (ROOT / page).read_text()))


def anchors(page: Path) -> set[str]:
    """The fragments a link may name, as code hosts make them from headings."""
    text = _BLOCK.sub("", (ROOT / page).read_text())
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        for title in _HEADING.findall(text)
    }
