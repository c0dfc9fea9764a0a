"""Who runs what: for people (`mint status`) and for what watches the server (`/metrics`)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from mint.core.ids import Owner
from mint.server.auth.principal import Principal
from mint.server.service.link import EngineHealth, Link
from mint.server.store.records import (
    Model,
    OperationCount,
    OperationStatus,
    QueueLine,
    Session,
    Usage,
)
from mint.server.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Status:
    """One look at the server. An admin's key sees everything, any other key what is its own."""

    engine: EngineHealth
    sees_all: bool
    sessions: Sequence[Session]
    """Open ones."""
    models: Sequence[Model]
    """In memory, or on their way there."""
    queue: Sequence[QueueLine]
    waiting_of_others: int
    """Operations of owners that the caller does not see."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What is counted, of all owners. Whoever shows it decides about their names."""

    engine: EngineHealth
    operations: Sequence[OperationCount]
    open_sessions: int
    models: int
    usage: Sequence[Usage]
    """Of all hours, by owner and key."""
    queue: Sequence[QueueLine]


class StatusService:
    def __init__(self, store: Store, link: Link) -> None:
        self._store = store
        self._link = link

    async def status(self, who: Principal) -> Status:
        """What goes on now."""
        owner = None if who.is_admin else who.owner
        return await asyncio.to_thread(self._status, owner)

    async def figures(self) -> Figures:
        """What `/metrics` counts, of all owners."""
        return await asyncio.to_thread(self._figures)

    def _status(self, owner: Owner | None) -> Status:
        queue = self._store.queue()
        mine = [line for line in queue if owner in (None, line.owner)]
        waiting = OperationStatus.PENDING
        return Status(
            engine=self._link.health(),
            sees_all=owner is None,
            sessions=self._store.open_sessions(owner),
            models=self._store.live_models(owner),
            queue=mine,
            waiting_of_others=sum(
                line.count for line in queue if line not in mine and line.status is waiting
            ),
        )

    def _figures(self) -> Figures:
        return Figures(
            engine=self._link.health(),
            operations=self._store.count_operations(),
            open_sessions=len(self._store.open_sessions(limit=1_000_000)),
            models=len(self._store.live_models()),
            usage=self._store.usage_by_key(),
            queue=self._store.queue(),
        )
