"""Tasks that live and die together, and work that has so much time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """asyncio.TaskGroup, except that what fails surfaces as itself.

    The first failure cancels the other tasks, which are awaited; then it is raised, not a group that
    holds it. Callers catch RuntimeError or an SDK error, whichever task it came from.
    """
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as failures:
        failure = _first(failures)
    if failure is not None:
        raise failure  # outside of the handler: its own cause and context stay as they are


async def run_together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results, in the order of `work`; the first failure cancels the rest and is raised."""
    async with task_group() as tasks:
        started = [tasks.create_task(one) for one in work]
    return [task.result() for task in started]


@asynccontextmanager
async def limited(clock: asyncio.Timeout, too_late: Callable[[], Exception]) -> AsyncIterator[None]:
    """Ends what is within when the clock's time is up; `too_late` makes the error that is raised.

    A TimeoutError of the work's own stays what it is.
    """
    try:
        async with clock:
            yield
    except TimeoutError as error:
        if not clock.expired():
            raise
        raise too_late() from error


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The earliest; any others are noted on it."""
    leaves = list(_leaves(failures))
    for other in leaves[1:]:
        leaves[0].add_note(f"Another task failed at the same time: {other!r}")
    return leaves[0]


def _leaves(failures: BaseExceptionGroup[BaseException]) -> Iterable[BaseException]:
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _leaves(failure)
        else:
            yield failure
