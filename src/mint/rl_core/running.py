"""Coroutines run to their end by plain calls, wherever they are called."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from mint.recipe.tasks import has_running_loop
from mint.rl_core.threads import THREADS

T = TypeVar("T")


def run_to_end(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of the coroutine.

    In a script it runs as asyncio.run has it. Where an event loop runs in this thread already, as in a
    notebook, it runs on a loop in a thread of its own, while this one waits: what it prints and raises
    is the same, and an interrupt (a notebook's stop) cancels it. Under asyncio.run, which keeps the first
    Ctrl-C for the next await, the second one does: such code awaits instead of calling this.
    """
    if not has_running_loop():
        return asyncio.run(make())
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        started.set_result((asyncio.get_running_loop(), task))
        return await make()

    result = THREADS.start(lambda: asyncio.run(main()))
    try:
        return result.result()
    except BaseException:
        if not result.done():  # it is this thread that was interrupted
            loop, task = started.result()
            loop.call_soon_threadsafe(task.cancel)
            _wait(result)
        raise


def away_from_loop(work: Callable[[], T]) -> T:
    """The result of a plain call that may start an event loop of its own, which cannot be done where
    one runs."""
    return THREADS.start(work).result() if has_running_loop() else work()


def _wait(result: "Future[Any]") -> None:
    try:
        result.exception()
    except BaseException:  # cancelled, or interrupted once more
        return
