"""Files of JSON objects, one a line, that survive being killed in the middle of one."""

import json
import logging
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from mint.recipe.exceptions import DataFormatError

log = logging.getLogger(__name__)


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append an object and flush it."""
    append_lines(path, [value])


def append_lines(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Append objects and flush them: strict JSON, see `plain_numbers`; what JSON does not know is
    written as text. A line that an earlier process left half-written is cut off first, or it would
    spoil the next one too."""
    lines = [
        json.dumps(plain_numbers(value), ensure_ascii=False, allow_nan=False, default=str)
        for value in values
    ]
    try:
        with path.open("ab+") as file:
            _end_last_line(path, file)
            file.write("".join(f"{line}\n" for line in lines).encode())
    except OSError as error:  # a write that fails does not say where
        error.filename = error.filename or str(path)
        raise


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file; none if there is no file. A last line that is only half there is left
    out with a warning.

    Raises:
        DataFormatError: another line is no JSON object; it is named by its number.
    """
    # By bytes and not splitlines(): JSON may hold a line separator of Unicode's as it is.
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(_object(line))
        except ValueError as error:
            if number < len(lines):
                raise DataFormatError(
                    f"{path}, line {number}: {error}. Mend or delete that line."
                ) from error
            log.warning("%s: the last line is only half there, and is left out.", path)
    return found


def plain_numbers(value: Any) -> Any:
    """A value of metrics as strict JSON has it: numpy's numbers as Python's, and what is not finite
    as None."""
    if type(value) is float:  # these two first: a step has thousands of spans
        return value if math.isfinite(value) else None
    if type(value) in (str, int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_numbers(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_numbers(one) for one in value]
    if isinstance(value, np.ndarray):
        return plain_numbers(value.tolist())
    if isinstance(value, (np.generic, Enum)):
        value = value.item() if isinstance(value, np.generic) else value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _end_last_line(path: Path, file: Any) -> None:
    size = file.seek(0, 2)
    if size == 0:
        return
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return
    whole, _, rest = path.read_bytes().rpartition(b"\n")
    try:
        _object(rest)
    except ValueError:
        log.warning("%s: a half-written last line is cut off.", path)
        file.truncate(len(whole) + 1 if whole else 0)
    else:
        file.write(b"\n")


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ValueError(f"no JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value
