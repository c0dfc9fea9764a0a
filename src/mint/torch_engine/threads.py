"""Which operations of a forward pass over few rows are worth more than one CPU thread.

A thread sleeps while it has nothing to do (OMP_WAIT_POLICY=PASSIVE: one that spins takes the core
of whoever computes beside us), so an operation that is shared waits some tens of microseconds for
the others to wake. Of the three thousand operations of a decode round most take less than that:
shared by two they took two to three times as long. The products with base weights are two thirds
of the round, and two threads do them in 0.6 of the time. So those are shared, each by as many threads
as have enough to do, and everything else stays on one.

torch's number of threads belongs to the thread that calls, and costs 0.1 us to change.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

FEW_ROWS = 64
"""Rows of a pass that is run so. With more, the small operations are large enough to share, too."""

_SHARE_S = 60e-6
"""Computing that is worth waking a thread for."""
_FLOPS, _BYTES = 1e11, 15e9
"""What one core of the measured CPU does in a second: float32 operations, and bytes of weights read."""

_most = 1
"""Threads that a product may have in the pass over few rows now running; 1: there is no such pass."""


@contextmanager
def few_rows(rows: int, most: int | None = None) -> Iterator[None]:
    """Inside, if the rows are few, operations run on one thread, but for those in `Shared`.

    Args:
        most: threads of one product; None: as many as torch has now.
    """
    global _most
    threads, before = torch.get_num_threads(), _most
    if rows > FEW_ROWS or threads == 1:
        yield
        return
    _most = min(most or threads, threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _most = before
        torch.set_num_threads(threads)


class Shared:
    """A product of weights: inside `few_rows`, this block has more than one thread if that pays."""

    def __init__(self, rows: int, weights: int, bytes_each: int) -> None:
        """
        Args:
            rows: that are multiplied.
            weights: of the matrix, so many numbers of so many bytes.
        """
        self._threads = 1 if _most == 1 else worthwhile(_most, rows, weights, bytes_each)

    def __enter__(self) -> None:
        if self._threads > 1:
            torch.set_num_threads(self._threads)

    def __exit__(self, *_: object) -> None:
        if self._threads > 1:
            torch.set_num_threads(1)


def worthwhile(most: int, rows: int, weights: int, bytes_each: int) -> int:
    """How many threads have enough to do in a product: between 1 and `most`. Pure.

    It is bound by arithmetic, or where the rows are few by reading the weights.
    """
    arithmetic_s = 2 * rows * weights / (_FLOPS * 4 / bytes_each)
    reading_s = weights * bytes_each / _BYTES
    return max(1, min(most, int(max(arithmetic_s, reading_s) / _SHARE_S)))
