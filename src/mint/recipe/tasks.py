"""Tasks that live and die together, and work that has so much time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")

MOST_NOTED = 3
"""Of failures that came with another and are not like it."""


def has_running_loop() -> bool:
    """Whether an event loop runs in this thread, so that asyncio.run cannot be called here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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
    """The earliest; any others are noted on it, in a few lines."""
    first, *others = _leaves(failures)
    with suppress(Exception):  # an error that takes no note, or cannot be shown
        for note in _notes(repr(first), [repr(other) for other in others]):
            first.add_note(note)
    return first


def _notes(first: str, others: Sequence[str]) -> Iterator[str]:
    alike = others.count(first)
    if alike:
        tasks = "1 other task" if alike == 1 else f"{alike} other tasks"
        yield f"{tasks} failed at the same time in the same way."
    different = [other for other in others if other != first]
    for other in different[:MOST_NOTED]:
        yield f"At the same time: {other}"
    if len(different) > MOST_NOTED:
        yield f"At the same time: {len(different) - MOST_NOTED} more."


def _leaves(failures: BaseExceptionGroup[BaseException]) -> Iterable[BaseException]:
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _leaves(failure)
        else:
            yield failure
