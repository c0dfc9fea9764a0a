"""One call of a user's scoring method: in a thread or on the loop, for so long and no longer.

Whatever the method does ends here: it may raise anything, never return, or resist its cancellation.
"""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from mint.recipe.promises import resolved
from mint.recipe.rl.held_loop import Watched
from mint.recipe.rl.stray_cancellation import strays_as_errors
from mint.rl_core.places import Place
from mint.rl_core.reward import LONGEST_LOG
from mint.rl_core.threads import THREADS

GRACE_S = 1.0
"""How long a cancelled coroutine may take to end before nobody waits for it."""


class TimeIsUp(Exception):
    """The call had its time, and was cut."""


@dataclass(frozen=True)
class Method:
    """A scoring method, as its class names it."""

    owner: type
    name: str
    call: Callable[[], Any]
    """With its arguments bound."""
    needs_thread: bool

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.name}"


async def run(method: Method, place: Place, timeout_s: float | None) -> Any:
    """What the method returns; an awaitable that it returns is awaited.

    The place is given back when nothing of the call runs any more. A thread cannot be stopped: after
    its time it is left to itself, and its place is given up. Where the waiting is cancelled, a thread
    keeps its place for the rest of its time.

    Raises:
        TimeIsUp: it took longer than `timeout_s`.
        Exception: the method's own. What is no Exception, such as SystemExit, comes as a RuntimeError.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        thread = THREADS.start(lambda: _in_thread(method)) if method.needs_thread else None
    except RuntimeError:  # the machine has no thread left
        place.end()
        raise
    task = asyncio.create_task(_on_loop(method, thread))
    task.add_done_callback(_heard)
    is_over = False
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        is_over = not task.done()
        if is_over:
            raise TimeIsUp
        return task.result()
    finally:
        try:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=GRACE_S)
        finally:
            rest_s = 0.0 if is_over else timeout_s and timeout_s - (loop.time() - began)
            _give_back(place, thread, task, rest_s)


def _give_back(
    place: Place, thread: "Future[Any] | None", task: "asyncio.Task[Any]", rest_s: float | None
) -> None:
    """The place is free once thread and task have ended.

    Args:
        rest_s: what is left of the call's time; None if it has no limit.
    """
    if thread is not None and not thread.done():
        thread.add_done_callback(lambda _: place.end())
    elif not task.done():
        task.add_done_callback(lambda _: place.end())
    else:
        place.end()
        return
    if rest_s is not None and rest_s <= 0:
        place.give_up()
    else:
        place.give_up_in(rest_s)


def _in_thread(method: Method) -> tuple[Any]:
    """The result, wrapped: a promise among them is awaited on the loop, and watched there."""
    try:
        return (method.call(),)
    except BaseException as error:
        # StopIteration cannot pass a future; what is no Exception would end more than this call.
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise _as_error(method, error) from error


async def _on_loop(method: Method, thread: "Future[Any] | None") -> Any:
    """The result of the thread's call, or of one made here; awaited if that is to be done."""
    with strays_as_errors(str(method)):
        try:
            (result,) = (method.call(),) if thread is None else await resolved(thread)
            while inspect.isawaitable(result):
                result = await Watched(result, method.owner, method.name)
            return result
        except SystemExit as error:
            raise _as_error(method, error) from error


def _as_error(method: Method, error: BaseException) -> RuntimeError:
    return RuntimeError(f"{method} raised {told_of(error)}")


def told_of(error: BaseException) -> str:
    """An error's type and message, cut; its class may not be able to say what it is."""
    try:
        said = str(error)
    except Exception:
        said = "(it cannot be shown)"
    return f"{type(error).__name__}: {said[:LONGEST_LOG]}"


def _heard(task: "asyncio.Task[Any]") -> None:
    """What a task that was given up raises later is no news."""
    if not task.cancelled():
        task.exception()
