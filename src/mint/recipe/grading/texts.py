"""Text answers: compared as they are, without what does not matter, or word by word."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

References: TypeAlias = str | Sequence[str]
"""One right answer, or several of which the best counts."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def exact_match(text: str, expected: References) -> bool:
    """Whether the text is an expected answer, but for white space around it."""
    return text.strip() in {one.strip() for one in as_references(expected)}


def normalised_match(text: str, expected: References) -> bool:
    """Whether the text is an expected answer after `normalise_text` of both.

    Also if both are nothing then. Not for numbers: -5 and 5 are the same without punctuation.

    Source: Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1 ("exact match").
    """
    return normalise_text(text) in map(normalise_text, as_references(expected))


def token_f1(text: str, expected: References) -> float:
    """The words that text and answer share, from 0 to 1: a reward with partial credit.

        precision = shared / words of the text,  recall = shared / words of the answer
        F1        = 2 * precision * recall / (precision + recall)

    Over normalised words, each counted as often as it occurs in both. 1 if neither has a word, 0 if
    only one has. Of several answers, the best.

    Source: Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1.
    """
    words = normalise_text(text).split()
    return max(_f1(words, normalise_text(one).split()) for one in as_references(expected))


def normalise_text(text: str) -> str:
    """The text without what rarely matters: case, punctuation, articles, amount of white space.

    Departs from its source, which knows ASCII only: characters are first brought to one form (NFKC:
    full-width letters become plain, ligatures two letters), and all of Unicode's punctuation goes.

    Source: Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    text = "".join(one for one in text if not _is_punctuation(one))
    return " ".join(_ARTICLES.sub(" ", text).split())


def as_references(expected: References) -> list[str]:
    """
    Raises:
        ValueError: there is not one answer to compare with.
    """
    answers = [expected] if isinstance(expected, str) else list(expected)
    if not answers:
        raise ValueError("expected is empty: give one right answer or more.")
    return answers


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def _f1(words: list[str], expected: list[str]) -> float:
    if not words or not expected:
        return float(words == expected)
    shared = (Counter(words) & Counter(expected)).total()
    return 2 * shared / (len(words) + len(expected))
