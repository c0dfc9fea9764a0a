"""A cancellation that nobody asked for is an error like any other."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def strays_as_errors(who: str) -> Iterator[None]:
    """Turn a CancelledError that comes out of user code into a RuntimeError, unless this task has
    been cancelled.

    An env that lets one through (a client of its own that was closed, a task of its own that it
    cancelled and awaited) would otherwise vanish: a group of tasks takes such a member for one that
    it cancelled itself, and whoever waits for its episode waits for ever.

    Args:
        who: named in the error.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError(
            f"{who} raised CancelledError, although nobody cancelled the rollout. It cancelled or "
            "closed something that it was waiting for; catch that there."
        ) from error
