"""What other threads tell the worker's thread."""

import threading
from dataclasses import dataclass

from mint.core.ids import OperationId


@dataclass(frozen=True)
class Told:
    """What came in since the last time it was asked for."""

    woken: bool
    cancelled: tuple[OperationId, ...]


class Signals:
    """Wake-ups, cancellations and the wish to stop. Thread-safe."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._woken = True  # the queue may hold something from before
        self._cancelled: list[OperationId] = []
        self._stopping = False

    def wake(self) -> None:
        with self._news:
            self._woken = True
            self._news.notify()

    def cancel(self, operation_id: OperationId) -> None:
        with self._news:
            self._cancelled.append(operation_id)
            self._news.notify()

    def stop(self) -> None:
        with self._news:
            self._stopping = True
            self._news.notify()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def take(self) -> Told:
        with self._news:
            told = Told(self._woken, tuple(self._cancelled))
            self._woken = False
            self._cancelled.clear()
        return told

    def wait(self, timeout_s: float) -> None:
        """Sleep until something comes in, or for the time."""
        with self._news:
            self._news.wait_for(lambda: self._woken or self._cancelled or self._stopping, timeout_s)
