"""What a client asks before it does anything: its settings, and what is on offer here."""

from typing import Any

from fastapi import APIRouter, Request

from mint.server.http.deps import Caller, Catalog
from mint.wire.versions import CLIENT_CONFIG, DYNAMIC_CONFIG

router = APIRouter()


@router.post("/api/v1/client/config")
async def client_config(caller: Caller) -> dict[str, Any]:
    """Settings a client reads once. Needs no session."""
    return dict(CLIENT_CONFIG)


@router.post("/api/v1/client/dynamic_config")
async def client_dynamic_config(caller: Caller) -> dict[str, Any]:
    """Settings a client reads again every few minutes."""
    return dict(DYNAMIC_CONFIG)


@router.get("/api/v1/get_server_capabilities")
async def server_capabilities(caller: Caller, catalog: Catalog) -> dict[str, Any]:
    """The base models on offer."""
    return {
        "supported_models": [
            {
                "model_name": model.name,
                "max_context_length": model.max_context,
                "trainable": True,
                "sampleable": True,
            }
            for model in await catalog.served()
        ]
    }


@router.post("/api/v1/telemetry")
async def telemetry(caller: Caller, request: Request) -> dict[str, str]:
    """Accept and drop: the events hold request headers, with the API key among them. Clients of
    some releases send a refused batch again every second."""
    async for _ in request.stream():
        pass
    return {"status": "accepted"}
