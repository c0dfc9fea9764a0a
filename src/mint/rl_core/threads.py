"""Daemon threads for calls that may never come back.

asyncio's own pool has as many threads as cores and four, so 48 rewards of two seconds would queue in
it, and the interpreter joins its threads before it exits: one hung reward, and Ctrl-C does not end the
program. These threads are as many as there are calls at once, and nobody waits for them.
"""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from mint.recipe.forks import forget_in_forks

T = TypeVar("T")

IDLE_S = 10.0
"""How long a thread waits for its next call. Kept at all, since libraries hold a client or a thread
pool of their own per thread."""

_Inbox = SimpleQueue[Callable[[], None]]


class CallThreads:
    """Runs each call in a thread at once; a thread that is done with one takes the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Inbox] = []

    def start(self, call: Callable[[], T]) -> "Future[T]":
        """Begin a call, in a copy of the caller's context. The future cannot be cancelled."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        context = contextvars.copy_context()
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(
                target=self._work, args=(inbox,), name="mint-rl-core", daemon=True
            ).start()
        inbox.put(lambda: context.run(_settle, future, call))
        return future

    def _work(self, inbox: _Inbox) -> None:
        while (job := self._next(inbox)) is not None:
            job()
            del job  # with what it refers to, while this thread waits
            with self._lock:
                self._idle.append(inbox)

    def _next(self, inbox: _Inbox) -> Callable[[], None] | None:
        """The next call; None if none came and the thread can end."""
        try:
            return inbox.get(timeout=IDLE_S)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    return None
        return inbox.get()  # chosen just now: the call is on its way

    def forget(self) -> None:
        """After a fork: the threads exist in the parent only, and it may have held the lock."""
        self._lock = threading.Lock()
        self._idle = []


def _settle(future: "Future[Any]", call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:  # every kind: whoever waits has to hear of it
        future.set_exception(error)
    else:
        future.set_result(result)


THREADS = CallThreads()
"""One set for the process: a pool an adapter would leave idle threads behind with each."""
forget_in_forks(THREADS)
