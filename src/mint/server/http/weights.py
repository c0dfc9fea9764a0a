"""Checkpoints written and read by training models."""

from typing import Any

from fastapi import APIRouter, Request

from mint.core.checkpoints import CheckpointKind
from mint.core.errors import UnsupportedError
from mint.core.ids import ModelId, SessionId
from mint.server.http.deps import Caller, Checkpoints, Copies, Weights, read
from mint.server.http.models import promise
from mint.server.service.copies import Project, Slot
from mint.server.service.model_queue import NewRun
from mint.server.service.sessions import text_values
from mint.server.service.weights import Save
from mint.wire import convert
from mint.wire import json_models as body
from mint.wire.errors import BodyError

router = APIRouter()


@router.post("/api/v1/save_weights")
async def save_weights(request: Request, caller: Caller, weights: Weights) -> dict[str, Any]:
    """Queue a checkpoint from which training can go on."""
    asked = await read(request, body.SaveWeights)
    save = _save(asked, CheckpointKind.TRAINING)
    operation_id = await weights.save(caller, ModelId(asked.model_id), asked.seq_id, save)
    return promise(operation_id, model_id=asked.model_id)


@router.post("/api/v1/save_weights_for_sampler")
async def save_weights_for_sampler(
    request: Request, caller: Caller, weights: Weights
) -> dict[str, Any]:
    """Queue a checkpoint for sampling: a named one, or weights pinned to a sampling session."""
    asked = await read(request, body.SaveWeightsForSampler)
    model = ModelId(asked.model_id)
    if asked.path is not None:
        save = _save(asked, CheckpointKind.SAMPLER)
        operation_id = await weights.save(caller, model, asked.seq_id, save)
    elif asked.sampling_session_seq_id is not None:
        operation_id = await weights.pin_sampler(
            caller,
            model,
            asked.seq_id,
            asked.sampling_session_seq_id,
            lambda: _check_kind(asked.kind),
        )
    else:
        raise BodyError("path, sampling_session_seq_id: give one of them.")
    return promise(operation_id, model_id=asked.model_id)


@router.post("/api/v1/save_weights_external")
async def save_weights_external(
    request: Request, caller: Caller, weights: Weights
) -> dict[str, Any]:
    """Queue a checkpoint that is to be taken elsewhere: its files can be fetched one by one."""
    asked = await read(request, body.SaveWeightsExternal)
    operation_id = await weights.save(
        caller,
        ModelId(asked.model_id),
        asked.seq_id,
        _save(asked, CheckpointKind.EXTERNAL),
        lambda: _check_encryption(asked.age_encryption_recipients),
    )
    return promise(operation_id, model_id=asked.model_id)


@router.post("/api/v1/copy_weights")
async def copy_weights(request: Request, caller: Caller, copies: Copies) -> dict[str, str]:
    """Copy a checkpoint into a project, or into a run of a session; done when it answers."""
    asked = await read(request, body.CopyWeights)
    _check_token(request.headers.get("x-tinker-weights-access-token") or asked.weights_access_token)
    path = await copies.copy(
        caller, asked.source_path, _destination(request, asked), asked.ttl_seconds
    )
    return {"tinker_path": path}


@router.post("/api/v1/load_weights")
async def load_weights(request: Request, caller: Caller, weights: Weights) -> dict[str, Any]:
    """Queue loading a checkpoint: into a model, or as a new one (SDKs from 0.24)."""
    asked = await read(request, body.LoadWeights)
    if asked.model_id is not None:
        operation_id = await weights.load(
            caller,
            ModelId(asked.model_id),
            asked.seq_id,
            asked.path,
            with_optimizer=asked.optimizer,
            check=lambda: _check_token(asked.weights_access_token),
        )
        return promise(operation_id, model_id=asked.model_id)
    if asked.session_id is None or asked.model_seq_id is None:
        raise BodyError("give either model_id, or session_id with model_seq_id.")
    run = NewRun(
        session_id=SessionId(asked.session_id),
        model_seq_id=asked.model_seq_id,
        user_metadata=text_values(asked.user_metadata),
    )

    def check() -> None:
        convert.check_optimizer(asked.optimizer_config)
        _check_token(asked.weights_access_token)

    operation_id = await weights.create_model_from(
        caller,
        run,
        asked.path,
        with_optimizer=asked.optimizer,
        base_model=asked.base_model,
        check=check,
    )
    return promise(operation_id, model_id=run.model_id)


@router.post("/api/v1/weights_info")
async def weights_info(
    request: Request, caller: Caller, checkpoints: Checkpoints
) -> dict[str, Any]:
    """What a checkpoint was trained on, and its shape."""
    asked = await read(request, body.WeightsInfo)
    found = await checkpoints.checkpoint(caller, asked.tinker_path)
    return {
        "base_model": found.base_model,
        "is_lora": True,
        "lora_rank": found.lora.rank,
        "train_unembed": found.lora.train_unembed,
        "train_mlp": found.lora.train_mlp,
        "train_attn": found.lora.train_attn,
        "optimizer_config": {"type": "adamw"},
    }


def _save(asked: body.SaveWeights, kind: CheckpointKind) -> Save:
    return Save(
        name=asked.path,
        kind=kind,
        ttl_seconds=asked.ttl_seconds,
        overwrite=asked.overwrite,
        user_metadata=text_values(asked.user_metadata),
    )


def _check_kind(kind: str) -> None:
    if kind != "snapshot":
        raise UnsupportedError(
            f"sampling client kind {kind!r} is not offered; a sampling session here keeps the "
            "weights it was made with (kind 'snapshot')."
        )


def _destination(request: Request, asked: body.CopyWeights) -> Slot | Project:
    if asked.session_id is not None and asked.model_seq_id is not None:
        return Slot(session_id=SessionId(asked.session_id), model_seq_id=asked.model_seq_id)
    if asked.destination_project_id is not None:
        return Project(
            project_id=asked.destination_project_id,
            idempotency_key=request.headers.get("x-idempotency-key"),
        )
    raise BodyError("give either destination_project_id, or session_id with model_seq_id.")


def _check_token(token: str | None) -> None:
    if token is not None:
        raise UnsupportedError(
            "weights access tokens are not offered by this server. Whoever owns the checkpoint can "
            "publish it: tinker checkpoint publish PATH."
        )


def _check_encryption(recipients: list[str]) -> None:
    if recipients:
        raise UnsupportedError(
            "age_encryption_recipients: this server writes no encrypted checkpoints. Leave it out, "
            "and encrypt the files after downloading them."
        )
