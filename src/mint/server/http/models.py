"""Training models: made, described, unloaded."""

from typing import Any

from fastapi import APIRouter, Request

from mint.core.ids import ModelId, OperationId, SessionId
from mint.core.lora import LoraSpec
from mint.server.http.deps import Caller, Training, read
from mint.server.service.model_queue import NewRun
from mint.server.service.sessions import text_values
from mint.wire import convert
from mint.wire import json_models as body

router = APIRouter()


def promise(operation_id: OperationId, **more: Any) -> dict[str, Any]:
    """Accepted; the result is read from /retrieve_future."""
    return {"request_id": str(operation_id), **more}


@router.post("/api/v1/create_model")
async def create_model(request: Request, caller: Caller, training: Training) -> dict[str, Any]:
    """Queue a new adapter on a base model."""
    asked = await read(request, body.CreateModel)
    run = NewRun(
        session_id=SessionId(asked.session_id),
        model_seq_id=asked.model_seq_id,
        user_metadata=text_values(asked.user_metadata),
    )

    def lora() -> LoraSpec:
        convert.check_optimizer(asked.optimizer_config)
        return convert.lora_spec(asked.lora_config)

    operation_id = await training.create_model(caller, run, asked.base_model, lora)
    return promise(operation_id, model_id=run.model_id)


@router.post("/api/v1/get_info")
async def get_info(request: Request, caller: Caller, training: Training) -> dict[str, Any]:
    """What a model stands on."""
    asked = await read(request, body.ModelOnly)
    model = await training.model(caller, ModelId(asked.model_id))
    return {
        "type": "get_info",
        "model_id": model.model_id,
        "model_data": {"model_name": model.base_model, "tokenizer_id": model.base_model},
        "model_name": model.base_model,
        "is_lora": True,
        "lora_rank": model.lora.rank,
    }


@router.post("/api/v1/unload_model")
async def unload_model(request: Request, caller: Caller, training: Training) -> dict[str, Any]:
    """Queue the end of a model, behind what is queued for it."""
    asked = await read(request, body.ModelOnly)
    operation_id = await training.unload(caller, ModelId(asked.model_id))
    return promise(operation_id, model_id=asked.model_id)
