"""Runs and checkpoints, as people list them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from mint.core.checkpoints import CheckpointKind
from mint.core.ids import ModelId
from mint.server.http.deps import Caller, Checkpoints
from mint.server.service.checkpoints import Page, Run
from mint.server.store.records import Checkpoint, ModelState

router = APIRouter()

Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, lt=1 << 63)]


@router.get("/api/v1/training_runs")
async def list_runs(
    caller: Caller, checkpoints: Checkpoints, limit: Limit = 20, offset: Offset = 0
) -> dict[str, Any]:
    """The caller's models, the most recently used first."""
    page = await checkpoints.runs(caller, limit, offset)
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
    checkpoints: Checkpoints,
    limit: Limit = 1000,
    offset: Offset = 0,
) -> dict[str, Any]:
    """What one model saved, newest first."""
    page = await checkpoints.checkpoints(caller, ModelId(model_id), limit, offset)
    return {
        "checkpoints": [_checkpoint(found) for found in page.items],
        "cursor": _cursor(page, limit, offset),
    }


@router.get("/api/v1/checkpoints")
async def list_checkpoints(
    caller: Caller, checkpoints: Checkpoints, limit: Limit = 100, offset: Offset = 0
) -> dict[str, Any]:
    """What all the caller's models saved, newest first."""
    page = await checkpoints.checkpoints(caller, None, limit, offset)
    return {
        "checkpoints": [_checkpoint(found) for found in page.items],
        "cursor": _cursor(page, limit, offset),
    }


@router.delete("/api/v1/training_runs/{model_id}/checkpoints/{checkpoint:path}", status_code=204)
async def delete_checkpoint(
    model_id: str, checkpoint: str, caller: Caller, checkpoints: Checkpoints
) -> Response:
    """Remove a checkpoint, with its files."""
    await checkpoints.delete(caller, f"tinker://{model_id}/{checkpoint}")
    return Response(status_code=204)


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
    is_training = checkpoint.kind == CheckpointKind.TRAINING.value
    return {
        "checkpoint_id": f"{checkpoint.kind}/{checkpoint.name}",
        "checkpoint_type": "training" if is_training else "sampler",
        "time": checkpoint.created_at.isoformat(),
        "tinker_path": checkpoint.path,
        "size_bytes": checkpoint.size_bytes,
        "public": checkpoint.is_public,
        "expires_at": checkpoint.expires_at.isoformat() if checkpoint.expires_at else None,
        "user_metadata": dict(checkpoint.user_metadata),
    }


def _cursor(page: Page[Any], limit: int, offset: int) -> dict[str, int]:
    return {"offset": offset, "limit": limit, "total_count": page.total}
