"""Passes over data, and optimizer steps."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from mint.core.ids import ModelId
from mint.core.operations import ForwardBackward
from mint.server.http.deps import Caller, Training, read, receive_body, services, unpack_body
from mint.server.http.models import promise
from mint.wire import convert, protobuf
from mint.wire import json_models as body
from mint.wire.errors import EncodingError
from mint.wire.versions import JSON, PROTOBUF

router = APIRouter()


@router.post("/api/v1/forward_backward")
async def forward_backward(request: Request, caller: Caller, training: Training) -> dict[str, Any]:
    """Queue one pass over data; SDKs from 0.25 send forward-only ones here too."""
    return await _queue_pass(request, caller, training, forward_only=False)


@router.post("/api/v1/forward")
async def forward(request: Request, caller: Caller, training: Training) -> dict[str, Any]:
    """Queue one forward-only pass: logprobs and loss, no gradient (SDKs up to 0.24)."""
    return await _queue_pass(request, caller, training, forward_only=True)


@router.post("/api/v1/optim_step")
async def optim_step(request: Request, caller: Caller, training: Training) -> dict[str, Any]:
    """Queue one optimizer step."""
    asked = await read(request, body.OptimStep)
    model = ModelId(asked.model_id)
    operation_id = await training.optim_step(
        caller, model, asked.seq_id, lambda: convert.optim_step(asked)
    )
    return promise(operation_id, model_id=asked.model_id)


async def _queue_pass(
    request: Request, caller: Caller, training: Training, *, forward_only: bool
) -> dict[str, Any]:
    content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if content_type == PROTOBUF:
        return await _queue_protobuf(request, caller, training)
    if content_type == JSON:
        return await _queue_json(request, caller, training, forward_only=forward_only)
    raise EncodingError(
        f"Content-Type {content_type!r} is not spoken here; send {PROTOBUF} or {JSON}."
    )


async def _queue_protobuf(request: Request, caller: Caller, training: Training) -> dict[str, Any]:
    sent = await receive_body(request)
    # Unpacked, parsed and on their way to the disk, bodies are there several times over. So few
    # are at once, whoever sends how many; what is held meanwhile had to be sent.
    async with services(request).few_passes:
        raw = await unpack_body(request, sent)
        message = await asyncio.to_thread(protobuf.receive_forward_backward, raw)

        def make() -> tuple[ForwardBackward, bytes | None]:
            return protobuf.forward_backward(message), raw

        # 0 means that no number was given; the SDK counts from 1.
        operation_id = await training.forward_backward(
            caller,
            ModelId(message.model_id),
            message.seq_id or None,
            make,
            forward_only=message.forward_only,
        )
        return promise(operation_id, model_id=message.model_id)


async def _queue_json(
    request: Request, caller: Caller, training: Training, *, forward_only: bool
) -> dict[str, Any]:
    asked = await read(request, body.ForwardBackward)

    def make() -> tuple[ForwardBackward, bytes | None]:
        return convert.forward_backward(asked, forward_only=forward_only), None

    operation_id = await training.forward_backward(
        caller, ModelId(asked.model_id), asked.seq_id, make, forward_only=forward_only
    )
    return promise(operation_id, model_id=asked.model_id)
