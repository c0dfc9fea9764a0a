"""Rows of the tables as the records of `records.py`."""

from dataclasses import asdict
from typing import Any

from mint.core.errors import Fault
from mint.core.ids import OperationId
from mint.core.lora import LoraSpec
from mint.core.models import ServedModel
from mint.server.store.records import (
    Checkpoint,
    Key,
    Model,
    ModelState,
    OperationRecord,
    OperationStatus,
    PendingOperation,
    QueueLine,
    Sampler,
    Session,
)

AnyRow = Any
"""A Row; its type parameters differ between SQLAlchemy 2.0 and 2.1."""


def lora_json(lora: LoraSpec) -> dict[str, Any]:
    return asdict(lora)


def key(row: AnyRow) -> Key:
    return Key(
        key_id=row.key_id,
        owner=row.owner,
        name=row.name,
        hint=row.hint,
        is_admin=row.is_admin,
        created_at=row.created_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )


def session(row: AnyRow) -> Session:
    return Session(
        session_id=row.session_id,
        owner=row.owner,
        created_at=row.created_at,
        last_seen_at=row.last_seen_at,
        finished_at=row.finished_at,
        finish_reason=row.finish_reason,
        finish_detail=row.finish_detail,
        tags=tuple(row.tags),
        user_metadata=row.user_metadata,
        sdk_version=row.sdk_version,
        display_name=row.display_name,
        project_id=row.project_id,
    )


def model(row: AnyRow) -> Model:
    return Model(
        model_id=row.model_id,
        session_id=row.session_id,
        owner=row.owner,
        base_model=row.base_model,
        lora=LoraSpec(**row.lora),
        state=ModelState(row.state),
        weights_version=row.weights_version,
        created_at=row.created_at,
        last_request_at=row.last_request_at,
        user_metadata=row.user_metadata,
    )


def sampler(row: AnyRow) -> Sampler:
    return Sampler(
        sampler_id=row.sampler_id,
        session_id=row.session_id,
        owner=row.owner,
        base_model=row.base_model,
        weights=row.weights,
        model_id=row.model_id,
    )


def pending(row: AnyRow) -> PendingOperation:
    return PendingOperation(
        operation_id=OperationId(str(row.id)),
        arrival=row.id,
        kind=row.kind,
        owner=row.owner,
        model_id=row.model_id,
        sampler_id=row.sampler_id,
        tokens=row.tokens,
    )


def queue_line(row: AnyRow) -> QueueLine:
    return QueueLine(
        owner=row.owner,
        model_id=row.model_id,
        kind=row.kind,
        status=OperationStatus(row.status),
        count=row._mapping["count"],  # `.count` is a method of every row
        oldest_at=row.oldest_at,
    )


def operation(row: AnyRow) -> OperationRecord:
    return OperationRecord(
        operation_id=OperationId(str(row.id)),
        kind=row.kind,
        owner=row.owner,
        status=OperationStatus(row.status),
        model_id=row.model_id,
        sampler_id=row.sampler_id,
        created_at=row.created_at,
        finished_at=row.finished_at,
        result=row.result,
        error=row.error,
        fault=Fault(row.fault) if row.fault else None,
    )


def checkpoint(row: AnyRow) -> Checkpoint:
    return Checkpoint(
        path=row.path,
        owner=row.owner,
        model_id=row.model_id,
        kind=row.kind,
        name=row.name,
        base_model=row.base_model,
        lora=LoraSpec(**row.lora),
        folder=row.folder,
        size_bytes=row.size_bytes,
        created_at=row.created_at,
        expires_at=row.expires_at,
        is_public=row.is_public,
        user_metadata=row.user_metadata,
    )


def served(row: AnyRow) -> ServedModel:
    return ServedModel(
        name=row.name,
        architecture=row.architecture,
        vocab_size=row.vocab_size,
        max_context=row.max_context,
        parameters=row.parameters,
        dtype=row.dtype,
        device=row.device,
        tokenizer_folder=row.tokenizer_folder,
    )
