"""What is taken off a reward, from -1 to 0: for length, repetition and form.

Scale them with a weight of `weighted_sum`. Lengths are of whatever you count, usually the response's
tokens.
"""

from collections.abc import Hashable, Sequence


def length_penalty(length: int, *, free: int, full: int) -> float:
    """0 up to `free`, then falling in a straight line to -1 at `full` and beyond.

    Raises:
        ValueError: not 0 <= free < full.
    """
    if not 0 <= free < full:
        raise ValueError(
            f"length_penalty: free={free} and full={full} have to be 0 <= free < full."
        )
    return -min(1.0, max(0.0, (length - free) / (full - free)))


def soft_overlong_penalty(length: int, *, max_length: int, cache: int) -> float:
    """A slope before the hard limit, so that a cut response is not the first sign of one.

        0                                  length <= max_length - cache
        (max_length - cache - length) / cache     up to max_length
        -1                                 beyond

    Args:
        max_length: L_max, in tokens; at or below the limit that cuts responses.
        cache: L_cache, the length of the slope before it.

    Raises:
        ValueError: not 0 < cache <= max_length.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, eq. 13.
    """
    if not 0 < cache <= max_length:
        raise ValueError(
            f"soft_overlong_penalty: cache={cache} has to be above 0 and at most max_length="
            f"{max_length}."
        )
    return length_penalty(length, free=max_length - cache, full=max_length)


def repetition_penalty(sequence: str | Sequence[Hashable], n: int = 4) -> float:
    """Minus the share of n-grams that were there before: 0 if none repeats, near -1 in a loop.

        unique n-grams / n-grams - 1

    Args:
        sequence: tokens, or a text, which is split at white space.
        n: 0 is also what a sequence shorter than this gets.

    Raises:
        ValueError: n is below 1.
    """
    if n < 1:
        raise ValueError(f"repetition_penalty: n={n} has to be 1 or more.")
    items = sequence.split() if isinstance(sequence, str) else sequence
    grams = [tuple(items[i : i + n]) for i in range(len(items) - n + 1)]
    return len(set(grams)) / len(grams) - 1.0 if grams else 0.0


def format_penalty(is_well_formed: bool) -> float:
    """0 for a response of the right form (`follows_tags`, `pattern_matches`), else -1."""
    return 0.0 if is_well_formed else -1.0
