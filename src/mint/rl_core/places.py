"""Places: how many scorings of one adapter run at once, and which of them are beyond reach.

Not asyncio.Semaphore, which belongs to one event loop: scripts call asyncio.run twice, and threads give
their places back by themselves.
"""

import asyncio
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass


class Places:
    """The places of one adapter. Usable from any number of event loops and threads.

    A scoring holds a place until it has ended. One that outlived its time limit and cannot be stopped
    gives its place up, so that healthy ones go on, and is counted as stuck until it ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        self._stuck = 0
        self._waiting: deque[_Waiter] = deque()

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def stuck(self) -> int:
        return self._stuck

    async def take(self, most: int) -> "Place":
        """Wait until fewer than `most` are taken, in order of arrival, and take one."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._taken < most and not self._waiting:
                self._taken += 1
                return Place(self)
            waiter = _Waiter(most, loop, loop.create_future())
            self._waiting.append(waiter)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise
        return Place(self)

    def _withdraw(self, waiter: "_Waiter") -> None:
        with self._lock:
            if waiter.has_place:
                self._taken -= 1
            else:
                with suppress(ValueError):  # no longer there: its loop was found closed
                    self._waiting.remove(waiter)
            self._call_next()

    def _call_next(self) -> None:
        """Hand free places to whoever waits longest. With the lock held."""
        while self._waiting and self._taken < self._waiting[0].most:
            waiter = self._waiting.popleft()
            with suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                waiter.loop.call_soon_threadsafe(waiter.come)
                waiter.has_place = True
                self._taken += 1

    def _change(self, *, taken: int = 0, stuck: int = 0) -> None:
        """With the lock held."""
        self._taken += taken
        self._stuck += stuck
        self._call_next()


@dataclass(eq=False)
class _Waiter:
    most: int
    loop: asyncio.AbstractEventLoop
    turn: "asyncio.Future[None]"
    has_place: bool = False

    def come(self) -> None:
        if not self.turn.done():  # cancelled meanwhile: it gives its place back itself
            self.turn.set_result(None)


@dataclass(eq=False)
class Place:
    """One scoring's place. Methods may be called from any thread, and more than once."""

    _of: Places
    _has_ended: bool = False
    _is_stuck: bool = False
    _timer: threading.Timer | None = None

    def end(self) -> None:
        """The scoring has ended: its place is free, and it is stuck no more."""
        with self._of._lock:
            if self._has_ended:
                return
            self._has_ended = True
            if self._timer is not None:
                self._timer.cancel()
            self._of._change(taken=-(not self._is_stuck), stuck=-self._is_stuck)

    def give_up(self) -> None:
        """It has had its time and runs on: others may have its place."""
        with self._of._lock:
            if self._has_ended or self._is_stuck:
                return
            self._is_stuck = True
            self._of._change(taken=-1, stuck=1)

    def give_up_in(self, seconds: float | None) -> None:
        """Nobody waits for it any more; it keeps its place until it ends, or for so long.

        By a thread's clock: the event loop may be gone by then.
        """
        if seconds is None:
            return
        self._timer = threading.Timer(max(0.0, seconds), self.give_up)
        self._timer.daemon = True
        self._timer.start()
        if self._has_ended:  # before it saw the timer
            self._timer.cancel()
