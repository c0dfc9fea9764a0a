"""Statements on rows of the queue, inside a transaction that a method of the store has begun."""

from datetime import datetime

from sqlalchemy import Connection, select

from mint.core.errors import NotFoundError
from mint.core.ids import OperationId
from mint.core.operations import Failure
from mint.server.store import rows
from mint.server.store.checkpoints import replace_checkpoint
from mint.server.store.models import no_model
from mint.server.store.records import Effects, NewOperation, OperationStatus
from mint.server.store.schema import models, operations, samplers


def insert(
    tx: Connection, request: NewOperation, failure: Failure | None, now: datetime
) -> OperationId:
    failed = failure is not None
    inserted = tx.execute(
        operations.insert()
        .values(
            owner=request.owner,
            kind=request.kind,
            scope=request.scope,
            seq_id=request.seq_id,
            model_id=request.model_id,
            sampler_id=request.sampler_id,
            tokens=request.tokens,
            status=OperationStatus.FAILED if failed else OperationStatus.PENDING,
            created_at=now,
            finished_at=now if failed else None,
            error=failure.message if failed else None,
            fault=failure.fault if failed else None,
            payload=None if failed else request.payload,
        )
        .returning(operations.c.id)
    )
    return OperationId(str(inserted.scalar_one()))


def first(tx: Connection, request: NewOperation) -> OperationId:
    same = (
        (operations.c.owner == request.owner)
        & (operations.c.scope == request.scope)
        & (operations.c.seq_id == request.seq_id)
    )
    return OperationId(str(tx.execute(select(operations.c.id).where(same)).scalar_one()))


def touch_model(tx: Connection, request: NewOperation, now: datetime) -> None:
    touched = tx.execute(
        models.update()
        .where(models.c.model_id == request.model_id, models.c.owner == request.owner)
        .values(last_request_at=now)
    )
    if not touched.rowcount and request.model_id is not None:
        raise no_model(request.model_id)


def end(
    tx: Connection,
    operation_id: OperationId,
    result: bytes | None,
    failure: Failure | None,
    now: datetime,
    *,
    was_started: bool = True,
) -> bool:
    """False: it had ended before."""
    open_ = [status for status in OperationStatus if not status.ended]
    ended = tx.execute(
        operations.update()
        .where(operations.c.id == number(operation_id), operations.c.status.in_(open_))
        .values(
            status=OperationStatus.FAILED if failure else OperationStatus.DONE,
            finished_at=now,
            result=result,
            error=failure.message if failure else None,
            fault=failure.fault if failure else None,
            payload=None,
            **({} if was_started else {"started_at": None}),
        )
    )
    return ended.rowcount > 0


def apply(tx: Connection, effects: Effects, now: datetime) -> list[str]:
    changes = {
        "state": effects.model_state,
        "base_model": effects.model_base,
        "lora": rows.lora_json(effects.model_lora) if effects.model_lora else None,
        "weights_version": effects.weights_version,
    }
    changes = {column: value for column, value in changes.items() if value is not None}
    if changes:
        tx.execute(models.update().where(models.c.model_id == effects.model_id).values(changes))
    if effects.delete_sampler is not None:
        tx.execute(samplers.delete().where(samplers.c.sampler_id == effects.delete_sampler))
    if effects.checkpoint is None:
        return []
    replaced = replace_checkpoint(tx, effects.checkpoint, now)
    return [replaced] if replaced and replaced != effects.checkpoint.folder else []


def number(operation_id: OperationId) -> int:
    """The row's id; something that is no number is no operation's."""
    if not (operation_id.isascii() and operation_id.isdigit() and len(operation_id) < 19):
        raise no_operation(operation_id)
    return int(operation_id)


def no_operation(operation_id: OperationId) -> NotFoundError:
    return NotFoundError(
        f"there is no operation {operation_id!r}. Results are kept for a while after their end "
        "(see result_retention_s); the request may have to be sent again."
    )
