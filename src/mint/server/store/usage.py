"""What was computed for whom, by the hour, and what is stored for them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.exc import IntegrityError

from mint.core.ids import Owner
from mint.server.store.database import Database
from mint.server.store.operation_rows import Ended
from mint.server.store.records import Storage, Usage
from mint.server.store.schema import (
    checkpoints,
    models,
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

_ADD = (
    usage.update()
    .where(*(column == bindparam(f"its_{column.name}") for column in usage.primary_key.columns))
    .values({name: usage.c[name] + bindparam(f"more_{name}") for name in _COUNTS})
)
_OF_MODEL = (
    select(models.c.base_model, sessions.c.key_id)
    .join(sessions, sessions.c.session_id == models.c.session_id)
    .where(models.c.model_id == bindparam("its_id"))
)
_OF_SAMPLER = (
    select(samplers.c.base_model, sessions.c.key_id)
    .join(sessions, sessions.c.session_id == samplers.c.session_id)
    .where(samplers.c.sampler_id == bindparam("its_id"))
)


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


def count(tx: Connection, ended: Iterable[Ended], now: datetime) -> None:
    """Add operations that have ended to their owners' usage, in the transaction that ends them.

    They count for the key that their session was opened with.
    """
    hour = now.replace(minute=0, second=0, microsecond=0)
    names: dict[tuple[str | None, ...], tuple[str, str]] = {}
    amounts: dict[tuple[str, str, str], Counter[str]] = {}
    for one in ended:
        if one.kind in _HOUSEKEEPING:
            continue
        place = (one.model_id, one.sampler_id)
        if place not in names:
            names[place] = _key_and_base(tx, one)
        amounts.setdefault((one.owner, *names[place]), Counter()).update(_amounts(one))
    for (owner, key_id, base_model), amount in amounts.items():
        row = {"hour": hour, "owner": owner, "key_id": key_id, "base_model": base_model}
        _add_or_begin(tx, row, {name: amount[name] for name in _COUNTS})


def _amounts(ended: Ended) -> dict[str, int]:
    ending, tokens = ended.ending, ended.ending.effects.tokens
    return {
        "operations": 1,
        "failed": int(ending.failure is not None),
        "trained_tokens": tokens.trained,
        "prompt_tokens": tokens.prompt,
        "sampled_tokens": tokens.sampled,
        "checkpoints": int(ending.effects.checkpoint is not None),
    }


def _add_or_begin(tx: Connection, row: Mapping[str, Any], amounts: Mapping[str, int]) -> None:
    if _add(tx, row, amounts):
        return
    try:
        with tx.begin_nested():
            tx.execute(usage.insert().values(**row, **amounts))
    except IntegrityError:  # another process began this hour's row first
        _add(tx, row, amounts)


def _add(tx: Connection, row: Mapping[str, Any], amounts: Mapping[str, int]) -> bool:
    """Add to the row of that name; False: there is none."""
    same = {f"its_{name}": value for name, value in row.items()}
    more = {f"more_{name}": amount for name, amount in amounts.items()}
    return tx.execute(_ADD, {**same, **more}).rowcount > 0


def _key_and_base(tx: Connection, ended: Ended) -> tuple[str, str]:
    """Key and base model of an operation; "" for what cannot be told."""
    if ended.model_id is not None:
        found = tx.execute(_OF_MODEL, {"its_id": ended.model_id}).one_or_none()
    else:
        found = tx.execute(_OF_SAMPLER, {"its_id": ended.sampler_id}).one_or_none()
    return ((found.key_id or ""), found.base_model) if found else ("", "")
