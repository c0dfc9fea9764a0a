"""Results of accepted work: waited for, or withdrawn."""

import asyncio
from dataclasses import dataclass

from mint.core.ids import OperationId, Owner
from mint.server.service.link import Link
from mint.server.store.records import OperationRecord, OperationStatus
from mint.server.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Not ended within the time one poll is held.

    Attributes:
        reason: what it waits for, for people.
        is_paused: nothing is computed at present, whatever is queued.
    """

    reason: str
    is_paused: bool


class FutureService:
    def __init__(self, store: Store, link: Link) -> None:
        self._store = store
        self._link = link

    async def retrieve(
        self, owner: Owner, operation_id: OperationId, hold_s: float
    ) -> OperationRecord | Waiting:
        """How an operation ended, waiting for it up to `hold_s`.

        Raises:
            NotFoundError: unknown, forgotten long after its end, or another owner's.
        """
        record = await asyncio.to_thread(self._store.operation, owner, operation_id)
        if record.status.ended:
            return record
        # The store first, then the link: it remembers what ended in between.
        await self._link.ended(operation_id, hold_s)
        record = await asyncio.to_thread(self._store.operation, owner, operation_id)
        return record if record.status.ended else await self._waiting(record)

    async def cancel(self, owner: Owner, operation_id: OperationId) -> None:
        """Withdraw an operation: at once while it waits, soon while it runs.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        status = await asyncio.to_thread(self._store.cancel, owner, operation_id)
        if status is OperationStatus.RUNNING:
            self._link.cancel(operation_id)
        else:
            self._link.announce([operation_id])

    async def _waiting(self, record: OperationRecord) -> Waiting:
        health = self._link.health()
        if health.state != "up":
            return Waiting(reason=f"engine is {health.state}: {health.detail}", is_paused=True)
        if record.status is OperationStatus.RUNNING:
            return Waiting(reason="it is being computed", is_paused=False)
        before = await asyncio.to_thread(self._store.position, record.operation_id)
        return Waiting(reason=f"{before} operations wait before it", is_paused=False)
