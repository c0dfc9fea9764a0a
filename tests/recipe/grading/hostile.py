"""Texts as no person writes them and as models do: for tests that no text stops a grader."""

import time
from collections.abc import Callable

UNITS = (
    "1", "1,", "1 ", "100 ", "-", "+ ", "1/", "1^", "1e", "1_", "1'", "½", "²", "2nd", "x2-", "1 1/",
    "\\frac{1", "\\frac", "\\text{", "^{", "^{a", "{", "}", "\\", "$", " ", "\n", "\\boxed{",
    "\\boxed{1}", "<answer>", "<answer></answer>", "(A", "A. ", "\nA. ", "answer is ",
    "answer is B or ", '["', "[1,", '{"a":', "```json\n[1", "```", "<think>", "<think></think>",
)  # fmt: skip
"""What is repeated tens of thousands of times, each a trap for some way of searching."""

TEXTS = (
    "", "\x00", "\ud800", "1e999999999", "10**10**10", "\\boxed{10^{10^{10}}}", "9" * 5000,
    "\\boxed{" + "{" * 10_000 + "}" * 10_001, "0" * 5000 + ".5", "1/0", "0^{-1}", "0/0", "-",
    "1e-999999999", "\\frac{1}{0}", "٣", "１２", "NaN", "inf", "[" * 10_000, "\\boxed{" + "9" * 5000 + "}",
)  # fmt: skip
"""Texts that hold something too large, too deep or without a meaning."""


def growth(function: Callable[[str], object], unit: str) -> float:
    """How many times the processor time a text takes that is 16 times as long: 16 if the time is
    proportional to the length, 256 if it goes with the square."""
    short, long = unit * (2_500 // len(unit)), unit * (40_000 // len(unit))
    return _seconds(function, long) / max(_seconds(function, short), 1e-3)


def _seconds(function: Callable[[str], object], text: str) -> float:
    taken = []
    for _ in range(2):
        start = time.thread_time()
        function(text)
        taken.append(time.thread_time() - start)
    return min(taken)
