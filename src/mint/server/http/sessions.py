"""Sessions."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from mint.core.ids import SessionId
from mint.server.http.deps import Caller, Sessions, read
from mint.server.service.sessions import text_values
from mint.server.store.records import NewSession
from mint.wire import json_models as body

router = APIRouter()


@router.post("/api/v1/create_session")
async def create_session(request: Request, caller: Caller, sessions: Sessions) -> dict[str, str]:
    """Open a session; the retry of a lost answer gets the same one."""
    asked = await read(request, body.CreateSession)
    session = await sessions.create(
        NewSession(
            owner=caller,
            idempotency_key=request.headers.get("x-idempotency-key"),
            tags=tuple(asked.tags),
            user_metadata=text_values(asked.user_metadata),
            sdk_version=asked.sdk_version,
            display_name=asked.display_name,
        )
    )
    return {"session_id": session.session_id, "type": "create_session"}


@router.post("/api/v1/session_heartbeat")
async def session_heartbeat(request: Request, caller: Caller, sessions: Sessions) -> dict[str, str]:
    """Note a sign of life; 410 once the session has ended."""
    asked = await read(request, body.Heartbeat)
    await sessions.heartbeat(caller, SessionId(asked.session_id))
    return {"type": "session_heartbeat"}


@router.post("/api/v1/sessions/{session_id}/finish", status_code=204)
async def finish_session(
    session_id: str, request: Request, caller: Caller, sessions: Sessions
) -> Response:
    """End a session; the first reason stays."""
    asked = await read(request, body.FinishSession)
    await sessions.finish(caller, SessionId(session_id), asked.reason.type, asked.detail)
    return Response(status_code=204)


@router.get("/api/v1/sessions")
async def list_sessions(
    caller: Caller,
    sessions: Sessions,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    offset: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
) -> dict[str, Any]:
    """The caller's sessions, newest first."""
    found = await sessions.list(caller, limit, offset)
    return {"sessions": [session.session_id for session in found]}


@router.get("/api/v1/sessions/{session_id}")
async def get_session(session_id: str, caller: Caller, sessions: Sessions) -> dict[str, Any]:
    """A session with the ids of its runs and samplers."""
    session, models, samplers = await sessions.get(caller, SessionId(session_id))
    return {
        "training_run_ids": [model.model_id for model in models],
        "sampler_ids": [sampler.sampler_id for sampler in samplers],
        "user_metadata": dict(session.user_metadata),
        "display_name": session.display_name,
    }
