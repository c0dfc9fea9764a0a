"""What was computed for whom, by the hour, and what is stored for them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import IntegrityError

from mint.core.ids import OperationId, Owner
from mint.server.store.database import Database
from mint.server.store.records import Effects, Storage, Usage
from mint.server.store.schema import (
    checkpoints,
    models,
    operations,
    samplers,
    sessions,
    usage,
)

_HOUSEKEEPING = ("UnloadModel", "ReleaseSampler", "ResolveModel")
"""Nobody's work: what the server does for itself."""

_COUNTS = (
    "operations", "failed", "trained_tokens", "prompt_tokens", "sampled_tokens", "checkpoints",
)  # fmt: skip
_SUMS = [func.sum(usage.c[name]).label(name) for name in _COUNTS]


class UsageBook(Database):
    def usage(
        self,
        owner: Owner | None = None,
        *,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> list[Usage]:
        """Usage by hour, key and base model, in order of time; of all owners if none is given."""
        query = select(usage).order_by(*usage.primary_key.columns)
        if owner is not None:
            query = query.where(usage.c.owner == owner)
        if since is not None:
            query = query.where(usage.c.hour >= since)
        if before is not None:
            query = query.where(usage.c.hour < before)
        with self.reading() as tx:
            return [Usage(**row._mapping) for row in tx.execute(query)]

    def usage_by_key(self, owner: Owner | None = None) -> list[Usage]:
        """Usage of all hours and base models together, by key; of all owners if none is given."""
        query = select(usage.c.owner, usage.c.key_id, *_SUMS).group_by(
            usage.c.owner, usage.c.key_id
        )
        if owner is not None:
            query = query.where(usage.c.owner == owner)
        with self.reading() as tx:
            found = tx.execute(query.order_by(usage.c.owner, usage.c.key_id)).all()
        return [
            Usage(
                hour=None,
                owner=row.owner,
                key_id=row.key_id,
                base_model="",
                **{name: int(row._mapping[name]) for name in _COUNTS},
            )
            for row in found
        ]

    def storage(self, owner: Owner | None = None) -> list[Storage]:
        """What checkpoints take, by owner and project; of all owners if none is given."""
        query = (
            select(
                checkpoints.c.owner,
                sessions.c.project_id,
                func.count().label("checkpoints"),
                func.sum(checkpoints.c.size_bytes).label("size_bytes"),
            )
            .select_from(checkpoints)
            .outerjoin(models, models.c.model_id == checkpoints.c.model_id)
            .outerjoin(sessions, sessions.c.session_id == models.c.session_id)
            .group_by(checkpoints.c.owner, sessions.c.project_id)
            .order_by(checkpoints.c.owner, sessions.c.project_id)
        )
        if owner is not None:
            query = query.where(checkpoints.c.owner == owner)
        with self.reading() as tx:
            return [
                Storage(
                    owner=row.owner,
                    project_id=row.project_id,
                    checkpoints=row.checkpoints,
                    size_bytes=int(row.size_bytes),
                )
                for row in tx.execute(query)
            ]


def count(
    tx: Connection, operation_id: OperationId, effects: Effects, *, failed: bool, now: datetime
) -> None:
    """Add an operation that has ended to its owner's usage, in the transaction that ends it.

    It counts for the key that its session was opened with.
    """
    who = _who(tx, int(operation_id))
    if who is None:
        return
    amounts = {
        "operations": 1,
        "failed": int(failed),
        "trained_tokens": effects.tokens.trained,
        "prompt_tokens": effects.tokens.prompt,
        "sampled_tokens": effects.tokens.sampled,
        "checkpoints": int(effects.checkpoint is not None),
    }
    row = {"hour": now.replace(minute=0, second=0, microsecond=0), **who}
    if _add(tx, row, amounts):
        return
    try:
        with tx.begin_nested():
            tx.execute(usage.insert().values(**row, **amounts))
    except IntegrityError:  # another process began this hour's row first
        _add(tx, row, amounts)


def _add(tx: Connection, row: Mapping[str, Any], amounts: Mapping[str, int]) -> bool:
    """Add to the row of that name; False: there is none."""
    same = [usage.c[name] == value for name, value in row.items()]
    more = {name: usage.c[name] + amount for name, amount in amounts.items()}
    return tx.execute(usage.update().where(*same).values(more)).rowcount > 0


def _who(tx: Connection, number: int) -> dict[str, str] | None:
    """Owner, key and base model of an operation; None: it is nobody's work."""
    operation = tx.execute(
        select(
            operations.c.owner, operations.c.kind, operations.c.model_id, operations.c.sampler_id
        ).where(operations.c.id == number)
    ).one()
    if operation.kind in _HOUSEKEEPING:
        return None
    of_model = operation.model_id is not None
    table, its_id = (models, operation.model_id) if of_model else (samplers, operation.sampler_id)
    found = tx.execute(
        select(table.c.base_model, sessions.c.key_id)
        .join(sessions, sessions.c.session_id == table.c.session_id)
        .where(table.c["model_id" if of_model else "sampler_id"] == its_id)
    ).one_or_none()
    return {
        "owner": operation.owner,
        "key_id": (found.key_id if found else None) or "",
        "base_model": found.base_model if found else "",
    }
