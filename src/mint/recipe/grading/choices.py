r"""Answers to multiple choice: a letter, when the response says clearly which.

    extract_choice("The answer is B.")           -> "B"
    extract_choice("(b)")                        -> "B"
    extract_choice(r"Hence \boxed{\text{C}}")    -> "C"
    extract_choice("A good idea is to wait.")    -> None
    extract_choice("It is either (A) or (B).")   -> None

A response that leaves a doubt has no answer: to name every letter must not pay.
"""

import re
from functools import cache
from typing import NamedTuple

from mint.recipe.grading.answers import answer_text

_MARKS = r"[\s*_`\"'“”$:]{0,8}"
"""Emphasis, quotes and white space before a letter. Bounded: a response may be spaces and no more."""

_STATEMENT = r"""
    \b(?: (?:answer|choice|option) \s{1,3} (?:is|would\sbe|must\sbe|should\sbe)
        | (?:answer|choice) \s?[*_]{0,2} [:=]
        | choose | pick | select | go\swith | must\sbe | it\sis | it['’]s | therefore | thus | hence
    ) (?: \s{1,3} (?:the\s)? (?:option|choice|letter) )?
"""

_ARTICLE = r"(?! [AI] \s (?! (?:because|since|as|for|but|which|given|due)\b ) [a-z] )"
"""No letter: the first word of "A good idea" and of "I think". """


class _Patterns(NamedTuple):
    alone: re.Pattern[str]
    """The letter and no more."""
    stated: re.Pattern[str]
    """`the answer is B`; the group `other` has the next letter of `B or C`."""
    labels: re.Pattern[str]
    """`(B)` anywhere, and `B.` or `B)` at the start of a line."""
    loose_labels: re.Pattern[str]
    """`B.` or `B)` within a line: no choice, but a doubt about another one."""


def extract_choice(text: str, letters: str = "ABCDE") -> str | None:
    r"""The letter that a response chooses, as a capital; None if it chooses none or several.

    The first of these that is there decides:

    1. The last `<answer>` tag or `\boxed{}`.
    2. The whole response, if it is a letter and no more.
    3. The last statement, such as `the answer is B`, `answer: (b)` or `I choose B`. A bare letter has
       to be a capital there. `B or C` is no answer.
    4. A label, `(B)` or `B.` at the start of a line, if the response labels nothing else.

    What a tag or box holds is read by 2 to 4.

    Args:
        letters: of the options there are.

    Raises:
        ValueError: `letters` is not capitals, each once.
    """
    patterns = _patterns(letters)
    marked = answer_text(text)
    text = text if marked is None else _without_latex(marked)
    if alone := patterns.alone.fullmatch(text.strip()):
        return _letter(alone)
    if stated := list(patterns.stated.finditer(text)):
        return None if stated[-1]["other"] else _letter(stated[-1])
    chosen = {_letter(label) for label in patterns.labels.finditer(text)}
    others = {label.upper() for label in patterns.loose_labels.findall(text)}
    return chosen.pop() if len(chosen) == 1 and others <= chosen else None


def choice_matches(text: str, expected: str, letters: str = "ABCDE") -> bool:
    """Whether the response chooses the expected letter.

    Raises:
        ValueError: `expected` is not one of `letters`.
    """
    if len(expected) != 1 or expected.upper() not in letters:
        raise ValueError(
            f"choice_matches: expected={expected!r} is none of the letters {letters!r}."
        )
    return extract_choice(text, letters) == expected.upper()


def _letter(found: re.Match[str]) -> str:
    return (found["bracketed"] or found["bare"]).upper()


def _without_latex(text: str) -> str:
    r"""The letter of `\text{B}` and `\textbf{(B)}`."""
    return re.sub(r"\\(?:text|textbf|mathrm|mathbf)(?![A-Za-z])|[{}]", "", text)


@cache
def _patterns(letters: str) -> _Patterns:
    if not re.fullmatch("[A-Z]+", letters) or len(set(letters)) < len(letters):
        raise ValueError(
            f"letters={letters!r}: give the capitals of the options, each once, such as 'ABCD'."
        )
    capital, either = f"[{letters}]", f"[{letters}{letters.lower()}]"
    bracketed = rf"[(\[]\s?(?P<bracketed>{either})\s?[)\]]"
    other = rf"{_MARKS}(?:,?\s?\b(?:or|and)\b|[/,&]){_MARKS}[(\[]?{capital}(?!\w)"
    return _Patterns(
        alone=re.compile(rf"{_MARKS}(?:{bracketed}|(?P<bare>{either})[.):]?){_MARKS}[.]?"),
        stated=re.compile(
            rf"(?i:{_STATEMENT}){_MARKS}(?:{bracketed}|{_ARTICLE}(?P<bare>{capital})(?![\w'’+-]))"
            rf"(?P<other>{other})?",
            re.VERBOSE,
        ),
        labels=re.compile(
            rf"{bracketed}|^[ *_#>-]{{0,6}}(?P<bare>{capital}(?=[.)])|{either}(?=\))).[*_]{{0,2}}(?!\S)",
            re.MULTILINE,
        ),
        loose_labels=re.compile(rf"(?<![\w(\[])({capital})[.)](?!\S)"),
    )
