"""Answers of programs that may be hostile: read within bounds, compared as plain values."""

import json
import math
from typing import Any

from mint.recipe.exceptions import DataValidationError
from mint.recipe.json_numbers import finite_float, refused_constant

MOST_DIGITS = 1000
"""Of an integer. Reading takes time that grows with the square."""

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""What JSON can say: no object whose `==` somebody else has written."""


class MalformedAnswerError(ValueError):
    """An answer is not one plain JSON value; the text says why."""


def parse_answer(answer: bytes) -> Plain:
    """The value that a program's answer stands for. Its size is bounded by who read it.

    Raises:
        MalformedAnswerError: it is no UTF-8 or no JSON, has NaN or an infinity (also as 1e999), an integer of
            more than MOST_DIGITS digits, or is nested too deep.
    """
    try:
        return json.loads(
            answer.decode(),
            parse_constant=refused_constant,
            parse_float=finite_float,
            parse_int=_of_some_length,
        )
    except RecursionError:
        raise MalformedAnswerError("it is nested too deep") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are some
        raise MalformedAnswerError(str(error)[:200]) from None


def plain(what: str, value: Any) -> Plain:
    """A trusted value as its JSON gives it back: tuples become lists, keys become text.

    Raises:
        DataValidationError: JSON cannot say it.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise DataValidationError(
            f"{what} = {value!r:.200} is no plain JSON value: {error}. Give None, bools, finite "
            "numbers, texts, and lists and dicts of them; compare anything else with `compare`."
        ) from error


def same_value(got: Plain, expected: Plain) -> bool:
    """Equality of JSON values. True is not 1; 1 is 1.0; floats may differ by 1e-9 of their size, as sums
    in another order do, and by 1e-9 from an expected 0 (but 0 is not an expected 1e-30)."""
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(same_value(got[key], value) for key, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(got) == len(expected)
            and all(map(same_value, got, expected))
        )
    if isinstance(expected, bool) or isinstance(got, bool):
        return got is expected
    if isinstance(expected, float) or isinstance(got, float):
        return (
            isinstance(expected, int | float)
            and isinstance(got, int | float)
            and _close(got, expected)
        )
    return type(got) is type(expected) and got == expected


def same_text(got: str, expected: str) -> bool:
    """Equality of texts but for white space at the ends of lines and blank lines at the end."""
    return _lines(got) == _lines(expected)


def _close(got: float, expected: float) -> bool:
    try:
        return math.isclose(got, expected, rel_tol=1e-9, abs_tol=0.0 if expected else 1e-9)
    except OverflowError:  # an integer beyond every float
        return False


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _of_some_length(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits; at most {MOST_DIGITS} are read")
    return int(digits)
