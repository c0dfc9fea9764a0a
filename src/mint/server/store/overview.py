"""What is going on now, for whoever looks after the server: counts, never bodies."""

from sqlalchemy import func, select

from mint.core.ids import Owner
from mint.server.store import rows
from mint.server.store.database import Database
from mint.server.store.records import (
    Model,
    ModelState,
    OperationCount,
    OperationStatus,
    QueueLine,
    Session,
)
from mint.server.store.schema import models, operations, sessions

_IN_MEMORY = (ModelState.CREATING, ModelState.READY)


class Overview(Database):
    def queue(self, owner: Owner | None = None) -> list[QueueLine]:
        """What waits and what runs, by model and kind, the oldest first; of all owners if none is
        given."""
        oldest = func.min(operations.c.created_at).label("oldest_at")
        by = (
            operations.c.owner, operations.c.model_id, operations.c.kind, operations.c.status,
        )  # fmt: skip
        open_ = [status for status in OperationStatus if not status.ended]
        query = (
            select(*by, func.count().label("count"), oldest)
            .where(operations.c.status.in_(open_))
            .group_by(*by)
            .order_by(oldest, *by)
        )
        if owner is not None:
            query = query.where(operations.c.owner == owner)
        with self.reading() as tx:
            return [rows.queue_line(row) for row in tx.execute(query)]

    def count_operations(self) -> list[OperationCount]:
        """All operations that are remembered, by kind and status."""
        by = (operations.c.kind, operations.c.status)
        with self.reading() as tx:
            found = tx.execute(select(*by, func.count().label("count")).group_by(*by).order_by(*by))
            return [
                OperationCount(row.kind, OperationStatus(row.status), row._mapping["count"])
                for row in found
            ]

    def open_sessions(self, owner: Owner | None = None, limit: int = 1000) -> list[Session]:
        """Sessions that have not ended, the last heard of first; of all owners if none is given."""
        query = select(sessions).where(sessions.c.finished_at.is_(None))
        if owner is not None:
            query = query.where(sessions.c.owner == owner)
        query = query.order_by(sessions.c.last_seen_at.desc(), sessions.c.session_id)
        with self.reading() as tx:
            return [rows.session(row) for row in tx.execute(query.limit(limit))]

    def live_models(self, owner: Owner | None = None) -> list[Model]:
        """Models in memory or on their way there, the last used first; of all owners if none is
        given."""
        query = select(models).where(models.c.state.in_(_IN_MEMORY))
        if owner is not None:
            query = query.where(models.c.owner == owner)
        query = query.order_by(models.c.last_request_at.desc(), models.c.model_id)
        with self.reading() as tx:
            return [rows.model(row) for row in tx.execute(query)]
