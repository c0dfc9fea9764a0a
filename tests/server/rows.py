"""Rows for tests: a session, a model, operations, with the fields that do not matter filled in."""

from typing import Any

from mint.core.ids import ModelId, OperationId, Owner, SamplerId, model_id
from mint.core.lora import LoraSpec
from mint.server.store.records import (
    NewCheckpoint,
    NewModel,
    NewOperation,
    NewSampler,
    NewSession,
    PendingOperation,
    Session,
)
from mint.server.store.store import Store

ANNE = Owner("anne")
BOB = Owner("bob")


def a_session(store: Store, owner: Owner = ANNE, key: str | None = None) -> Session:
    return store.create_session(NewSession(owner=owner, idempotency_key=key))


def a_model(session: Session, seq: int = 0, base: str = "base") -> NewModel:
    return NewModel(
        model_id=model_id(session.session_id, seq),
        session_id=session.session_id,
        owner=session.owner,
        base_model=base,
        lora=LoraSpec(rank=4),
    )


def a_sampler(session: Session, name: str, weights: str | None = None) -> NewSampler:
    return NewSampler(
        sampler_id=SamplerId(name),
        session_id=session.session_id,
        owner=session.owner,
        base_model="base",
        weights=weights,
    )


def an_operation(kind: str = "Sample", **fields: Any) -> NewOperation:
    given = {"owner": ANNE, "payload": b"{}", "scope": "scope", "seq_id": None, **fields}
    return NewOperation(kind=kind, **given)


def create_of(model: NewModel, seq: int = 0, **fields: Any) -> NewOperation:
    return an_operation(
        "CreateModel",
        owner=model.owner,
        scope=f"{model.session_id}/create",
        seq_id=seq,
        model_id=model.model_id,
        **fields,
    )


def a_checkpoint(model: NewModel, name: str, **fields: Any) -> NewCheckpoint:
    kind = fields.pop("kind", "weights")
    given = {
        "path": f"tinker://{model.model_id}/{kind}/{name}",
        "folder": f"checkpoints/{name}",
        "size_bytes": 10,
        **fields,
    }
    return NewCheckpoint(
        owner=model.owner, model_id=model.model_id, kind=kind, name=name,
        base_model=model.base_model, lora=model.lora, **given,
    )  # fmt: skip


def waiting(
    arrival: int,
    kind: str = "Sample",
    model: str | None = None,
    sampler: str | None = None,
    owner: str = "anne",
    tokens: int = 1,
) -> PendingOperation:
    """A queued operation as the scheduler sees it."""
    return PendingOperation(
        operation_id=OperationId(str(arrival)),
        arrival=arrival,
        kind=kind,
        owner=Owner(owner),
        model_id=ModelId(model) if model else None,
        sampler_id=SamplerId(sampler) if sampler else None,
        tokens=tokens,
    )
