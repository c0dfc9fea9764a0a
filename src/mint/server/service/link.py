"""What the services need of the way to the engine process; `mint.server.channel` fulfils it."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from mint.core.ids import OperationId


class EngineHealth(Protocol):
    """How the engine process is doing."""

    @property
    def state(self) -> str:
        """ "starting", "up" or "down" (gone for good)."""
        ...

    @property
    def detail(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def busy_with(self) -> str | None:
        """What keeps the engine from its operations and for how long, for people."""
        ...

    @property
    def capacity(self) -> Mapping[str, Any] | None: ...


class Link(Protocol):
    """Wake-ups to the engine process, and news of what ended there."""

    def wake(self) -> None:
        """There is something new in the queue."""
        ...

    def cancel(self, operation_id: OperationId) -> None:
        """Ask for an early end of an operation that runs."""
        ...

    def announce(self, operation_ids: Iterable[OperationId]) -> None:
        """Wake those who wait for operations that ended in this process."""
        ...

    async def ended(self, operation_id: OperationId, timeout_s: float) -> bool:
        """Wait for its end; True: it ended."""
        ...

    def health(self) -> EngineHealth: ...
