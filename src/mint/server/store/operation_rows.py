"""Statements on rows of the queue, inside a transaction that a method of the store has begun."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from mint.core.errors import NotFoundError
from mint.core.ids import ModelId, OperationId, Owner, SamplerId
from mint.core.operations import Failure
from mint.server.store import rows
from mint.server.store.checkpoints import replace_checkpoint
from mint.server.store.models import no_model
from mint.server.store.records import Effects, Ending, NewOperation, OperationStatus
from mint.server.store.schema import models, operations, samplers

_OPEN = (operations.c.status == OperationStatus.PENDING) | (
    operations.c.status == OperationStatus.RUNNING
)
_INSERT = operations.insert().returning(operations.c.id)
_SAME = select(operations.c.id).where(
    operations.c.owner == bindparam("its_owner"),
    operations.c.scope == bindparam("its_scope"),
    operations.c.seq_id == bindparam("its_seq_id"),
)
_TOUCH = models.update().where(
    models.c.model_id == bindparam("its_id"), models.c.owner == bindparam("its_owner")
)
_END = (
    operations.update()
    .where(operations.c.id == bindparam("number"), _OPEN)
    .returning(
        operations.c.owner, operations.c.kind, operations.c.model_id, operations.c.sampler_id
    )
)
_CHANGE = models.update().where(models.c.model_id == bindparam("its_id"))


def insert(
    tx: Connection, request: NewOperation, failure: Failure | None, now: datetime
) -> OperationId:
    failed = failure is not None
    values = {
        "owner": request.owner,
        "kind": request.kind,
        "scope": request.scope,
        "seq_id": request.seq_id,
        "model_id": request.model_id,
        "sampler_id": request.sampler_id,
        "tokens": request.tokens,
        "status": OperationStatus.FAILED if failed else OperationStatus.PENDING,
        "created_at": now,
        "finished_at": now if failed else None,
        "error": failure.message if failed else None,
        "fault": failure.fault if failed else None,
        "payload": None if failed else request.payload,
    }
    return OperationId(str(tx.execute(_INSERT, values).scalar_one()))


def first(tx: Connection, request: NewOperation) -> OperationId | None:
    """The operation that an earlier sending of the same request made; None: there was none."""
    if request.seq_id is None:
        return None
    same = {
        "its_owner": request.owner, "its_scope": request.scope, "its_seq_id": request.seq_id
    }  # fmt: skip
    found = tx.execute(_SAME, same).scalar_one_or_none()
    return None if found is None else OperationId(str(found))


def touch_model(tx: Connection, request: NewOperation, now: datetime) -> None:
    whose = {"its_id": request.model_id, "its_owner": request.owner}
    touched = tx.execute(_TOUCH, {**whose, "last_request_at": now})
    if not touched.rowcount and request.model_id is not None:
        raise no_model(request.model_id)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Whose operation has ended, and how."""

    owner: Owner
    kind: str
    model_id: ModelId | None
    sampler_id: SamplerId | None
    ending: Ending


def end(tx: Connection, ending: Ending, now: datetime) -> Ended | None:
    """None: it had ended before."""
    failure = ending.failure
    values = {
        "status": OperationStatus.FAILED if failure else OperationStatus.DONE,
        "finished_at": now,
        "result": ending.result,
        "error": failure.message if failure else None,
        "fault": failure.fault if failure else None,
        "payload": None,
        **({} if ending.was_started else {"started_at": None}),
    }
    row = tx.execute(_END, {"number": number(ending.operation_id), **values}).one_or_none()
    return Ended(**row._mapping, ending=ending) if row else None


def apply(tx: Connection, effects: Effects, now: datetime) -> list[str]:
    changes = {
        "state": effects.model_state,
        "base_model": effects.model_base,
        "lora": rows.lora_json(effects.model_lora) if effects.model_lora else None,
        "weights_version": effects.weights_version,
    }
    changes = {column: value for column, value in changes.items() if value is not None}
    if changes:
        tx.execute(_CHANGE, {"its_id": effects.model_id, **changes})
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
