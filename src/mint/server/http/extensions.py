"""Routes of our own, below /api/v1/mint/."""

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse

from mint.core.models import ServedModel
from mint.server.http.deps import Caller, Catalog

router = APIRouter()


@router.get("/api/v1/mint/server")
async def server(caller: Caller, catalog: Catalog) -> dict[str, Any]:
    """Who answers here, and with which base models."""
    return {
        "name": "mint",
        "version": version("mint-rl"),
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


def _model(model: ServedModel) -> dict[str, Any]:
    shown = asdict(model)
    del shown["tokenizer_folder"]  # a path of this machine tells nothing to others
    return shown
