"""Promises of the SDK, in all the forms that its releases give them: a concurrent future, something that
stands for one, an awaitable, or an awaitable of any of these."""

import asyncio
import inspect
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


async def resolved(value: Any) -> Any:
    """What a call of the SDK comes to: a value, or whatever the last of its promises gives.

    The loop is never held up. Cancelling this ends our waiting and leaves the request as it is: it
    has been sent, and for a training client its place in the order of calls is taken.
    """
    while True:
        pending = _plain_future(value)
        if pending is not None:
            value = await _waited_for(pending)
        elif inspect.isawaitable(value):
            value = await value
        else:
            return value


def _plain_future(value: Any) -> Future[Any] | None:
    """The concurrent future that a promise stands for or is, if there is one."""
    behind = getattr(value, "future", None)  # first: some are a future themselves, and warn if used
    pending = behind() if inspect.ismethod(behind) else value
    return pending if isinstance(pending, Future) else None


async def _waited_for(pending: Future[T]) -> T:
    # asyncio.wrap_future would hand a cancellation on, and a shielded task would stay behind.
    loop = asyncio.get_running_loop()
    here: asyncio.Future[T] = loop.create_future()

    def arrived(done: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_hand_over, done, here)

    pending.add_done_callback(arrived)
    return await here


def _hand_over(done: Future[T], here: "asyncio.Future[T]") -> None:
    if here.done():  # our waiting was cancelled
        return
    if done.cancelled():
        here.cancel()
    elif (error := done.exception()) is not None:
        here.set_exception(error)
    else:
        here.set_result(done.result())


class Submitted(Generic[T]):
    """A request that has its place in the order of calls; await it for the answer."""

    def __init__(self, promise: Any) -> None:
        self._promise = promise

    def __await__(self) -> Generator[Any, Any, T]:
        return resolved(self._promise).__await__()
