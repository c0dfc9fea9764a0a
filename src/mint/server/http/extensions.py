"""Routes of our own, below /api/v1/mint/."""

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse

from mint.core.ids import ModelId
from mint.core.models import ServedModel
from mint.core.operations import ReverseKL
from mint.server.http.deps import Caller, Catalog, Interpolation, Training, read
from mint.server.http.models import promise
from mint.wire import convert
from mint.wire import json_models as body

router = APIRouter()

EXTENSIONS = (
    "interpolate_checkpoints",
    "loss_temperature",
    "prompt_temperature",
    "reverse_kl",
    "stop_token_ids",
)
"""What we do beyond upstream's service, so that a client can ask before it relies on it:
loss_temperature: any loss takes the temperature its data was sampled at, loss_fn_config["temperature"];
prompt_temperature: a prompt's logprobs are those at the request's temperature."""


@router.get("/api/v1/mint/server")
async def server(caller: Caller, catalog: Catalog) -> dict[str, Any]:
    """Who answers here, what it does beyond upstream's service, and with which base models."""
    return {
        "name": "mint",
        "version": version("mint-rl"),
        "extensions": EXTENSIONS,
        "on_demand": catalog.on_demand,
        "models": [_model(model) for model in await catalog.served()],
    }


@router.get("/api/v1/mint/tokenizer")
async def tokenizer(model: str, caller: Caller, catalog: Catalog) -> dict[str, Any]:
    """The files of a base model's tokenizer, so that no client needs a hub."""
    files = await catalog.tokenizer_files(caller, model)
    return {"model": model, "files": [asdict(file) for file in files]}


@router.get("/api/v1/mint/tokenizer/{name}")
async def tokenizer_file(name: str, model: str, caller: Caller, catalog: Catalog) -> FileResponse:
    """One of them, byte for byte."""
    path = await catalog.tokenizer_file(caller, model, name)
    return FileResponse(path, media_type="application/octet-stream")


@router.post("/api/v1/mint/forward_backward_reverse_kl")
async def forward_backward_reverse_kl(
    request: Request, caller: Caller, training: Training
) -> dict[str, Any]:
    """Queue one gradient of the KL from a fixed reference, over the whole vocabulary."""
    asked = await read(request, body.ReverseKL)

    def make(reference_base: str, reference_weights: str | None) -> ReverseKL:
        return convert.reverse_kl(
            asked, reference_base=reference_base, reference_weights=reference_weights
        )

    operation_id = await training.reverse_kl(
        caller, ModelId(asked.model_id), asked.seq_id, asked.reference_model_path, make
    )
    return promise(operation_id, model_id=asked.model_id)


@router.post("/api/v1/mint/checkpoints/interpolate")
async def interpolate_checkpoints(
    request: Request, caller: Caller, interpolation: Interpolation
) -> dict[str, Any]:
    """Queue the writing of a weighted sum of checkpoints as a checkpoint."""
    asked = await read(request, body.InterpolateCheckpoints)
    operation_id = await interpolation.interpolate(
        caller,
        asked.source_paths,
        asked.coefficients,
        asked.output_path,
        request.headers.get("x-idempotency-key"),
    )
    return promise(operation_id)


def _model(model: ServedModel) -> dict[str, Any]:
    shown = asdict(model)
    del shown["tokenizer_folder"]  # a path of this machine tells nothing to others
    return shown
