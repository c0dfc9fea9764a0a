r"""Numeric answers: found in a response, and compared exactly.

    extract_number("First I compute 3 * 4 = 12, then 12 - 20 = -8.")     -> -8
    extract_number(r"So x = 5, and \boxed{\frac{1}{2}} of it is left.")  -> 1/2
    number_matches("The total is $1,234.50", 1234.5)                     -> True

Values are fractions, so 0.1 + 0.2 is 0.3. How numbers may be written is said in `numerals.py`.
"""

import re
from collections import deque
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Literal, TypeAlias

from mint.recipe.grading.answers import answer_text
from mint.recipe.grading.numerals import Numeral, numerals, plain

MAX_CHARS = 20_000
"""Of the end of a response, where its last number is looked for."""

Percent: TypeAlias = Literal["fraction", "number"]
"""What 50 % is: `fraction`, a half; `number`, 50, for questions that ask "how many percent?"."""

_UNIT = re.compile(
    r"\\(?:text|mathrm|textbf|mathbf)\s?\{[^{}\d]*\}(?:\^\{?\d\}?)?"  # \text{ cm}^2
    r"|\\(?:text|mathrm|textbf|mathbf|approx|circ|left|right|quad|degree)(?![A-Za-z])"
    r"|[°^{}$~*_\"'“”.,;:?()\s]"
    r"|(?<![^\W\d_])[^\W\d_]{2,}|(?<=\s)[^\W\d_](?![^\W\d_])"  # words; a letter, if it stands apart
)
"""What may stand around a number that is a whole answer: units, words, marks of sentence and layout.
No operator and no variable: 2x, 2 + 3 and 5! are no numbers."""


def extract_number(text: str, *, percent: Percent = "fraction") -> Fraction | None:
    r"""The number that a response gives as its answer.

    That is what its last `<answer>` tag or, without one, its last `\boxed{}` holds, if this is one
    number (`read_number`). Without either it is the last number of the text.

    None: there is none, or the one that counts has no clear value. An earlier number never takes its
    place: it was a step on the way. Without a mark, only the last `MAX_CHARS` characters are read.
    """
    marked = answer_text(text)
    if marked is not None:
        return read_number(marked, percent=percent)
    return _worth(_last(numerals(plain(_end_of(text)))), percent)


def read_number(text: str, *, percent: Percent = "fraction") -> Fraction | None:
    """The number that a short text is, with a unit or some words around it; else None.

    Of an equation, the side after its last sign: 5 for `x = 5`. None for two numbers, a pair, a
    product such as `2x`, or any other expression: `math_equal` compares those.
    """
    if len(text) > MAX_CHARS:
        return None
    side = re.split(r"=|≈|\\approx(?![A-Za-z])", plain(text))[-1].strip()
    found = list(numerals(re.sub(r"^([+-])\s+", r"\1", side)))
    if len(found) != 1:
        return None
    before, after = found[0].around
    beside = _UNIT.sub("", f"{before} ") + _UNIT.sub("", after)
    return None if beside else _worth(found[0], percent)


def number_matches(
    text: str,
    expected: int | float | Decimal | Fraction | str,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    percent: Percent = "fraction",
) -> bool:
    """Whether the response's number is the expected one.

        |answer - expected| <= max(absolute, relative * |expected|)

    Exact unless a tolerance is given. A float is taken as it is printed: 0.1 is one tenth.

    Args:
        expected: as text it is read as the response is: "3/4", "1,000", "50%".
        relative: such as 1e-3 where three digits are enough.
        absolute: in the unit of the answer.

    Raises:
        ValueError: `expected` is not a number, or a tolerance is negative or not finite.
    """
    wanted = _exactly(expected, "expected", percent)
    tolerances = _exactly(absolute, "absolute"), _exactly(relative, "relative")
    if min(tolerances) < 0:
        raise ValueError(
            f"number_matches: absolute={absolute} and relative={relative} have to be 0 or more."
        )
    answer = extract_number(text, percent=percent)
    if answer is None:
        return False
    return abs(answer - wanted) <= max(tolerances[0], tolerances[1] * abs(wanted))


def _end_of(text: str) -> str:
    """The last `MAX_CHARS` characters, from the first white space among them: no number is cut."""
    return text if len(text) <= MAX_CHARS else re.sub(r"^\S*", "", text[-MAX_CHARS:])


def _last(found: Iterable[Numeral]) -> Numeral | None:
    return next(iter(deque(found, maxlen=1)), None)


def _worth(found: Numeral | None, percent: Percent) -> Fraction | None:
    if percent not in ("fraction", "number"):
        raise ValueError(f"percent={percent!r}: give 'fraction' (50 % is 1/2) or 'number' (50).")
    if found is None or found.value is None:
        return None
    return found.value / 100 if found.is_percent and percent == "fraction" else found.value


def _exactly(
    number: int | float | Decimal | Fraction | str, name: str, percent: Percent = "fraction"
) -> Fraction:
    try:
        if isinstance(number, str):
            value = read_number(number, percent=percent)
        else:
            value = Fraction(str(number) if isinstance(number, float) else number)
    except (ValueError, OverflowError, TypeError):
        value = None
    if value is None or isinstance(number, bool):
        raise ValueError(
            f"number_matches: {name}={number!r} is not a finite number. Give an int, a float, a "
            "Decimal, a Fraction or a text such as '3/4'."
        )
    return value
