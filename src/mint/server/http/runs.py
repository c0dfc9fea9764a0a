"""Runs and checkpoints, as people list them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from mint.core.checkpoints import CheckpointKind
from mint.core.ids import ModelId
from mint.server.http.deps import Caller, Checkpoints, Sdk, read
from mint.server.service.checkpoints import Page, Run
from mint.server.store.records import Checkpoint, ModelState
from mint.wire import json_models as body
from mint.wire.versions import EXTERNAL_SINCE, SdkVersion

router = APIRouter()

Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, lt=1 << 63)]


@router.get("/api/v1/training_runs")
async def list_runs(
    caller: Caller,
    checkpoints: Checkpoints,
    limit: Limit = 20,
    offset: Offset = 0,
    project_id: str | None = None,
) -> dict[str, Any]:
    """The caller's models, the most recently used first."""
    page = await checkpoints.runs(caller, limit, offset, project_id=project_id)
    return {
        "training_runs": [_run(run) for run in page.items],
        "cursor": _cursor(page, limit, offset),
    }


@router.get("/api/v1/training_runs/{model_id}")
async def get_run(model_id: str, caller: Caller, checkpoints: Checkpoints) -> dict[str, Any]:
    """One model's life."""
    return _run(await checkpoints.run(caller, ModelId(model_id)))


@router.get("/api/v1/training_runs/{model_id}/checkpoints")
async def list_run_checkpoints(
    model_id: str,
    caller: Caller,
    sdk: Sdk,
    checkpoints: Checkpoints,
    limit: Limit = 1000,
    offset: Offset = 0,
) -> dict[str, Any]:
    """What one model saved, newest first."""
    page = await checkpoints.checkpoints(
        caller, ModelId(model_id), limit, offset, kinds=_kinds(sdk)
    )
    return {
        "checkpoints": [_checkpoint(found) for found in page.items],
        "cursor": _cursor(page, limit, offset),
    }


@router.get("/api/v1/checkpoints")
async def list_checkpoints(
    caller: Caller, sdk: Sdk, checkpoints: Checkpoints, limit: Limit = 100, offset: Offset = 0
) -> dict[str, Any]:
    """What all the caller's models saved, newest first."""
    page = await checkpoints.checkpoints(caller, None, limit, offset, kinds=_kinds(sdk))
    return {
        "checkpoints": [_checkpoint(found) for found in page.items],
        "cursor": _cursor(page, limit, offset),
    }


@router.delete("/api/v1/training_runs/{model_id}/checkpoints/{kind}/{name}", status_code=204)
async def delete_checkpoint(
    model_id: str, kind: str, name: str, caller: Caller, checkpoints: Checkpoints
) -> Response:
    """Remove a checkpoint, with its files."""
    await checkpoints.delete(caller, _path(model_id, kind, name))
    return Response(status_code=204)


@router.post("/api/v1/training_runs/{model_id}/checkpoints/{kind}/{name}/publish", status_code=204)
async def publish(
    model_id: str, kind: str, name: str, caller: Caller, checkpoints: Checkpoints
) -> Response:
    """Let everybody with a key read a checkpoint. Published twice is published."""
    await checkpoints.publish(caller, _path(model_id, kind, name), True)
    return Response(status_code=204)


@router.delete(
    "/api/v1/training_runs/{model_id}/checkpoints/{kind}/{name}/publish", status_code=204
)
async def unpublish(
    model_id: str, kind: str, name: str, caller: Caller, checkpoints: Checkpoints
) -> Response:
    """Let nobody else read it any more."""
    await checkpoints.publish(caller, _path(model_id, kind, name), False)
    return Response(status_code=204)


@router.put("/api/v1/training_runs/{model_id}/checkpoints/{kind}/{name}/ttl", status_code=204)
async def set_ttl(
    model_id: str,
    kind: str,
    name: str,
    request: Request,
    caller: Caller,
    checkpoints: Checkpoints,
) -> Response:
    """Give a checkpoint another end, or none."""
    asked = await read(request, body.SetTtl)
    await checkpoints.set_ttl(caller, _path(model_id, kind, name), asked.ttl_seconds)
    return Response(status_code=204)


def _path(model_id: str, kind: str, name: str) -> str:
    return f"tinker://{model_id}/{kind}/{name}"


def _kinds(sdk: SdkVersion | None) -> list[CheckpointKind]:
    """The kinds that an SDK knows; whoever else asks knows them all."""
    if sdk is None or sdk >= EXTERNAL_SINCE:
        return list(CheckpointKind)
    return [CheckpointKind.TRAINING, CheckpointKind.SAMPLER]


def _run(run: Run) -> dict[str, Any]:
    model = run.model
    return {
        "training_run_id": model.model_id,
        "base_model": model.base_model,
        "model_owner": model.owner,
        "is_lora": True,
        "lora_rank": model.lora.rank,
        "corrupted": model.state in (ModelState.FAILED, ModelState.LOST),
        "last_request_time": model.last_request_at.isoformat(),
        "last_checkpoint": run.last_checkpoint and _checkpoint(run.last_checkpoint),
        "last_sampler_checkpoint": run.last_sampler_checkpoint
        and _checkpoint(run.last_sampler_checkpoint),
        "user_metadata": dict(model.user_metadata),
    }


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "checkpoint_id": f"{checkpoint.kind}/{checkpoint.name}",
        "checkpoint_type": _TYPES[CheckpointKind(checkpoint.kind)],
        "time": checkpoint.created_at.isoformat(),
        "tinker_path": checkpoint.path,
        "size_bytes": checkpoint.size_bytes,
        "public": checkpoint.is_public,
        "expires_at": checkpoint.expires_at.isoformat() if checkpoint.expires_at else None,
        "user_metadata": dict(checkpoint.user_metadata),
    }


_TYPES = {
    CheckpointKind.TRAINING: "training",
    CheckpointKind.SAMPLER: "sampler",
    CheckpointKind.EXTERNAL: "external",
}


def _cursor(page: Page[Any], limit: int, offset: int) -> dict[str, int]:
    return {"offset": offset, "limit": limit, "total_count": page.total}
