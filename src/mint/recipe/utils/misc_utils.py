"""Four small functions over lists and dicts that loops and metrics share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")


def all_same(values: Iterable[Any]) -> bool:
    """Whether all values are equal; true of none and of one."""
    rest = iter(values)
    for first in rest:
        return all(value == first for value in rest)
    return True


def safezip(*columns: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """zip, of equal lengths only.

    Raises:
        ValueError: the lengths differ.
    """
    lengths = [len(column) for column in columns]
    if not all_same(lengths):
        raise ValueError(f"safezip: the lengths differ: {lengths}.")
    return zip(*columns, strict=True)


def split_list(items: Sequence[T], n: int) -> list[list[T]]:
    """`n` contiguous parts whose sizes differ by at most one, the longer ones first.

    Raises:
        ValueError: n < 1, or there are fewer items than parts.
    """
    if not 1 <= n <= len(items):
        raise ValueError(f"split_list: {len(items)} items cannot make {n} parts of one or more.")
    size, longer = divmod(len(items), n)
    ends = [size * i + min(i, longer) for i in range(n + 1)]
    return [list(items[start:end]) for start, end in pairwise(ends)]


def dict_mean(dicts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Per key, the mean over those dicts that have it."""
    values: dict[str, list[float]] = {}
    for each in dicts:
        for key, value in each.items():
            values.setdefault(key, []).append(value)
    return {key: sum(found) / len(found) for key, found in values.items()}
