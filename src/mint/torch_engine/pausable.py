"""Pausable: a computation that is left in the middle and taken up again.

A backward pass cannot be cut into pieces from outside: autograd runs it in one call. So it runs on
a thread of its own, of which one at a time computes: `advance` hands over to it, `pause` hands back.
A decode round that comes between finds no other thread at work, and the micro-batch keeps its size
(smaller ones would compute shared prefixes again and again).
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

Spend = Callable[[float], None]
"""What the computation calls as it goes on, with what it has cost since the last call. Blocks while
others have their turn."""


class _Abandoned(BaseException):
    """Thrown inside a computation that nobody will take up again."""


class Pausable(Generic[T]):
    """Args:
    compute: given the function to call at every point where it may be left.
    """

    def __init__(self, compute: Callable[[Spend], T]) -> None:
        self._compute = compute
        self._mine = threading.Semaphore(0)
        self._yours = threading.Semaphore(0)
        self._left = 0.0
        self._spent = 0.0
        self._done = self._abandoned = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)

    @property
    def done(self) -> bool:
        return self._done

    def advance(self, allowance: float) -> float:
        """Go on until the cost told reaches the allowance, or to the end; returns the cost."""
        assert not self._done
        self._left, self._spent = allowance, 0.0
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._mine.release()
        self._yours.acquire()
        return self._spent

    def result(self) -> T:
        """What was computed, once done. Raises what the computation raised."""
        assert self._done
        if self._error:
            raise self._error
        return self._value  # pyright: ignore[reportReturnType]

    def abandon(self) -> None:
        """End a computation that is not done, at the point where it was left."""
        self._abandoned = True
        if self._thread.ident is not None and not self._done:
            self._mine.release()
            self._yours.acquire()

    def _run(self) -> None:
        try:
            self._value = self._compute(self._spend)
        except BaseException as error:
            self._error = error
        self._done = True
        self._yours.release()

    def _spend(self, cost: float) -> None:
        if self._abandoned:
            raise _Abandoned
        self._spent += cost
        if self._spent < self._left:
            return
        self._yours.release()
        self._mine.acquire()
        if self._abandoned:
            raise _Abandoned
