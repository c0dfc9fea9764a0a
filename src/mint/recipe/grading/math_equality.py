r"""Mathematical equality: 1/2 is \frac{2}{4}, (x+1)^2 is x^2+2x+1, {1, 2} is {2, 1}.

The comparing is done by math-verify on top of sympy. An expression can keep these busy for minutes or
take gigabytes (10**10**10), and math-verify's own time limit is a signal, which fails outside the main
thread. So it works in a process that is killed at its limit (`workers.py`).
"""

import logging
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias, cast

from mint.recipe.grading.answers import answer_text
from mint.recipe.grading.optional import check_installed
from mint.recipe.grading.workers import Cut, WorkerPool

logger = logging.getLogger("mint.recipe.grading.math_equality")

MAX_CHARS = 10_000
"""Of a response; from its end, where the answer is."""

Reason: TypeAlias = Literal[
    "equal", "different", "no_answer", "timeout", "memory", "recursion", "crashed"
]


@dataclass(frozen=True)
class MathVerdict:
    """Whether an answer is the expected one, and why that was said."""

    is_equal: bool
    reason: Reason
    """The last four: the comparison ran into a limit, which counts as not equal."""


def math_equal(text: str, expected: str, *, timeout_s: float = 5.0) -> bool:
    """Whether the response's answer is mathematically the expected one; see `compare_math`."""
    return compare_math(text, expected, timeout_s=timeout_s).is_equal


def compare_math(text: str, expected: str, *, timeout_s: float = 5.0) -> MathVerdict:
    r"""Compare a response's answer with the expected one.

    The answer is what the last `<answer>` tag or `\boxed{}` holds; without either, what math-verify
    finds in the text. Numbers are equal if they agree to 6 decimals. Blocks for as long as it takes,
    so call it from a thread, as a plain `__call__` of an adapter is.

    Args:
        expected: LaTeX or plain, without `$`: "\\frac{1}{2}", "x = 3", "(1, 2)".
        timeout_s: of the comparison; waiting for a free worker and its start do not count.

    Raises:
        ValueError: `expected` holds nothing that can be compared. (Words do not raise: they are read
            as products of their letters.)
        ImportError: the extra `grading` is not installed.
    """
    check_installed("math_verify", "compare_math")
    marked = answer_text(text[-MAX_CHARS:])
    arguments = {
        "text": text[-MAX_CHARS:] if marked is None else _boxed(marked),
        "expected": _boxed(answer_text(expected) or expected),
    }
    answer = _workers().ask("compare_math", arguments, timeout_s)
    if isinstance(answer, Cut):
        logger.warning("comparing %.200r with %.200r: %s", marked, expected, answer.reason)
        return MathVerdict(False, cast(Reason, answer.reason))
    if answer.get("failure"):
        raise ValueError(
            f"expected={expected!r} cannot be read as mathematics. Give LaTeX or a plain expression, "
            "such as '\\\\frac{1}{2}' or '1/2'; for words there is normalised_match."
        )
    return MathVerdict(answer["reason"] == "equal", answer["reason"])


def _boxed(expression: str) -> str:
    return f"\\boxed{{{expression.strip().strip('$')}}}"


@cache
def _workers() -> WorkerPool:
    return WorkerPool(["math_verify"])
