"""The files that a program finds in its folder: names are checked before anything is written."""

from collections.abc import Mapping
from pathlib import Path

from mint.recipe.exceptions import DataValidationError
from mint.recipe.sandbox.limits import Limits

MOST_FILES = 200
"""Each is handed over as one open file."""
MOST_NAME_BYTES = 1024
MOST_PART_BYTES = 255

Files = Mapping[str, str | bytes]
"""Name, as a relative path with "/", to content. Text is written as UTF-8."""


def checked_files(files: Files, limits: Limits) -> dict[str, bytes]:
    """The files as bytes.

    Raises:
        DataValidationError: a name leads out of the folder, cannot be one, or stands twice; or they
            are more, or larger, than allowed.
    """
    if len(files) > MOST_FILES:
        raise DataValidationError(f"{len(files)} files; at most {MOST_FILES} can be handed over.")
    checked: dict[str, bytes] = {}
    for name, content in files.items():
        _check_name(name)
        checked[name] = _as_bytes(name, content)
    _check_no_file_is_also_a_folder(checked)
    size = sum(map(len, checked.values()))
    if size > limits.disk_bytes:
        raise DataValidationError(
            f"The files have {size} bytes together, more than Limits.disk_bytes={limits.disk_bytes}."
        )
    return checked


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write checked files below a folder that nobody else can write to yet."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _check_name(name: str) -> None:
    def refuse(why: str) -> DataValidationError:
        shown = name if len(name) <= 80 else name[:80] + "…"
        return DataValidationError(
            f'The file name {shown!r} {why}. Give a relative path below the folder, as "main.py".'
        )

    if not isinstance(name, str):
        raise DataValidationError(f"The file name {name!r} is no string.")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise refuse("cannot be written as UTF-8") from None
    parts = encoded.split(b"/")
    if b"\0" in encoded:
        raise refuse("has a NUL character")
    if encoded.startswith(b"/"):
        raise refuse("is absolute")
    if b".." in parts:
        raise refuse('has "..", which leads out of the folder')
    if b"" in parts or b"." in parts:
        raise refuse("has an empty part")
    if len(encoded) > MOST_NAME_BYTES or max(map(len, parts)) > MOST_PART_BYTES:
        raise refuse(f"is longer than {MOST_PART_BYTES} bytes a part or {MOST_NAME_BYTES} in all")


def _as_bytes(name: str, content: str | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    if not isinstance(content, str):
        raise DataValidationError(
            f"The content of {name!r} is {type(content).__name__}; give text or bytes."
        )
    # A lone surrogate, as a model's broken text may have, becomes a byte that is no UTF-8: the
    # program then fails to be read, and the batch around it goes on.
    return content.encode("utf-8", "surrogatepass")


def _check_no_file_is_also_a_folder(files: Mapping[str, bytes]) -> None:
    for name in files:
        for i, character in enumerate(name):
            if character == "/" and name[:i] in files:
                raise DataValidationError(f"{name[:i]!r} is a file, and a folder in {name!r}.")
