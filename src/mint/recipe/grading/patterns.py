"""Regular expressions on text that a model wrote, with a time limit.

Python's own `re` can take years for a pattern such as `(a+)+b` on a text made for it, and stops every
other thread meanwhile. The library `regex` reads the same patterns, can be told when to give up, and
lets other threads work.
"""

import logging
from typing import Any, Literal

from mint.recipe.grading.optional import needed

logger = logging.getLogger("mint.recipe.grading.patterns")


def search_pattern(
    text: str, pattern: str, *, group: int | str = 0, timeout_s: float = 1.0
) -> str | None:
    """The first place of the text that the pattern matches, or one group of it; else None.

    A search that is cut at its limit found nothing, and is logged with the pattern. Flags are written
    into the pattern: `(?i)`, `(?s)`, `(?m)`.

    Args:
        timeout_s: looked at once a second or so, so a search may last a second longer.

    Raises:
        ValueError: the pattern is not a regular expression, or has no such group.
        ImportError: the extra `grading` is not installed.
    """
    found = _match("search", text, pattern, timeout_s)
    try:
        return found and found[group]
    except IndexError:
        raise ValueError(f"the pattern {pattern!r} has no group {group!r}.") from None


def pattern_matches(text: str, pattern: str, *, timeout_s: float = 1.0) -> bool:
    """Whether the pattern matches the whole text, but for white space around it.

    Limit and errors as in `search_pattern`.
    """
    return _match("fullmatch", text.strip(), pattern, timeout_s) is not None


def _match(
    how: Literal["search", "fullmatch"], text: str, pattern: str, timeout_s: float
) -> Any | None:
    regex = needed("regex", "a pattern with a time limit")
    try:
        match = getattr(regex.compile(pattern), how)
        return match(text, timeout=timeout_s)
    except regex.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    except TimeoutError:
        logger.warning(
            "the pattern %r was cut after %g s on a text of %d characters and counts as not found; "
            "nested repeats such as (a+)+ are the usual reason",
            pattern, timeout_s, len(text),
        )  # fmt: skip
        return None
