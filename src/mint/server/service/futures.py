"""Results of accepted work: waited for, or withdrawn."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from mint.core.ids import OperationId, Owner
from mint.server.service.link import Link
from mint.server.store.records import OperationRecord, OperationStatus, QueuePlace
from mint.server.store.store import Store

PACE_OVER = timedelta(minutes=1)
"""An expected wait is told from how many operations ended within this time."""


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
    """
    Args:
        clock: gives the present time, zone-aware UTC.
    """

    def __init__(self, store: Store, link: Link, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._link = link
        self._clock = clock

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
            what = health.busy_with or health.detail
            return Waiting(reason=f"engine is {health.state}: {what}", is_paused=True)
        if health.busy_with:
            return Waiting(reason=f"the engine is {health.busy_with}", is_paused=False)
        if record.status is OperationStatus.RUNNING:
            return Waiting(reason="it is being computed", is_paused=False)
        lately = self._clock() - PACE_OVER
        place = await asyncio.to_thread(self._store.place, record.operation_id, lately)
        return Waiting(reason=describe(place), is_paused=False)


def describe(place: QueuePlace) -> str:
    """Where in the queue something is, and for how long at the present pace."""
    where = f"number {place.before + 1} of {place.waiting} that wait"
    if not place.ended_lately:
        return where
    wait_s = (place.before + 1) * PACE_OVER.total_seconds() / place.ended_lately
    return f"{where}; at the pace of the last minute its turn comes in about {_rounded(wait_s)}"


def _rounded(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
