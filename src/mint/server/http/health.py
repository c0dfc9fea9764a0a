"""Is it alive, and the answer to every path there is not."""

from typing import Any

from fastapi import APIRouter, Request

from mint.core.errors import NotFoundError
from mint.server.http.deps import Caller, services

router = APIRouter()
fallback = APIRouter()


@router.get("/healthz")
async def healthz(request: Request) -> dict[str, Any]:
    """How the service is doing, without a key: for whoever watches it."""
    health = services(request).link.health()
    return {
        "status": "ok" if health.state == "up" else "degraded",
        "engine": {
            "state": str(health.state),
            "detail": health.busy_with or health.detail,
            "capacity": dict(health.capacity) if health.capacity is not None else None,
        },
    }


@router.get("/api/v1/healthz")
async def api_healthz(caller: Caller) -> dict[str, str]:
    """Whether the API answers; the SDK's form."""
    return {"status": "ok"}


@fallback.api_route("/api/v1/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
async def not_offered(path: str, request: Request, caller: Caller) -> None:
    """Say so by name, rather than leave a bare 404."""
    raise NotFoundError(f"{request.method} /api/v1/{path} is not offered by this server (mint).")
