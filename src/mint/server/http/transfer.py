"""Checkpoints as files, below /api/v1/mint/: what upstream's protocol has no route for."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse

from mint.core.checkpoints import short_id
from mint.server.http.deps import Caller, Checkpoints, Transfer
from mint.server.http.models import promise
from mint.server.store.records import Checkpoint
from mint.wire.bundle import Reader

router = APIRouter()


@router.get("/api/v1/mint/checkpoints")
async def list_checkpoints(
    caller: Caller,
    transfer: Transfer,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> dict[str, Any]:
    """The caller's checkpoints, newest first."""
    found = await transfer.list(caller, limit, offset)
    return {"checkpoints": [_checkpoint(checkpoint) for checkpoint in found]}


@router.post("/api/v1/mint/checkpoints")
async def upload(
    request: Request, caller: Caller, transfer: Transfer, check: bool = False
) -> dict[str, Any]:
    """Take in a PEFT adapter (a body as in wire.bundle) and queue its becoming a checkpoint.

    With `check` the body is the announcement alone, and the answer says whether it would be taken.
    """
    body = Reader(request.stream())
    if check:
        await transfer.check(caller, body)
        return {"accepted": True}
    operation_id, path = await transfer.receive(caller, body)
    return promise(operation_id, path=path)


@router.get("/api/v1/mint/checkpoint")
async def describe(path: str, caller: Caller, transfer: Transfer) -> dict[str, Any]:
    """One checkpoint, by path or short id, with its files."""
    stored = await transfer.describe(caller, path)
    files = [file.model_dump() for file in stored.files]
    return {**_checkpoint(stored.checkpoint), "files": files}


@router.delete("/api/v1/mint/checkpoint", status_code=204)
async def delete(
    path: str, caller: Caller, transfer: Transfer, checkpoints: Checkpoints
) -> Response:
    """Remove a checkpoint, by path or short id, with its files."""
    await checkpoints.delete(caller, await transfer.path(caller, path))
    return Response(status_code=204)


@router.get("/api/v1/mint/checkpoint/{name}")
async def file(name: str, path: str, caller: Caller, transfer: Transfer) -> FileResponse:
    """One of its files, byte for byte."""
    found = await transfer.file(caller, path, name)
    return FileResponse(found, media_type="application/octet-stream")


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    lora = asdict(checkpoint.lora)
    del lora["seed"]
    return {
        "id": short_id(checkpoint.path),
        "path": checkpoint.path,
        "kind": checkpoint.kind,
        "base_model": checkpoint.base_model,
        "lora": lora,
        "size_bytes": checkpoint.size_bytes,
        "created_at": checkpoint.created_at.isoformat(),
        "expires_at": checkpoint.expires_at.isoformat() if checkpoint.expires_at else None,
        "public": checkpoint.is_public,
        "user_metadata": dict(checkpoint.user_metadata),
    }
