"""Sessions."""

from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from mint.core.ids import SessionId
from mint.server.http.deps import Caller, Sessions, Who, read
from mint.server.service.session_search import SessionQuery, StatusQuery, status_of
from mint.server.service.sessions import FoundSession, text_values
from mint.server.store.records import NewSession, Session
from mint.wire import json_models as body
from mint.wire.versions import greeting

router = APIRouter()


@router.post("/api/v1/create_session")
async def create_session(request: Request, who: Who, sessions: Sessions) -> dict[str, str]:
    """Open a session; the retry of a lost answer gets the same one."""
    asked = await read(request, body.CreateSession)
    session = await sessions.create(
        NewSession(
            owner=who.owner,
            idempotency_key=request.headers.get("x-idempotency-key"),
            tags=tuple(asked.tags),
            user_metadata=text_values(asked.user_metadata),
            sdk_version=asked.sdk_version,
            display_name=asked.display_name,
            project_id=asked.project_id,
            key_id=who.key_id,
        )
    )
    return {
        "session_id": session.session_id,
        "type": "create_session",
        **greeting(asked.sdk_version, version("mint-rl")),
    }


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


@router.put("/api/v1/sessions/{session_id}/project", status_code=204)
async def assign_project(
    session_id: str, request: Request, caller: Caller, sessions: Sessions
) -> Response:
    """Put a session into a project: a label to list by, which opens and closes nothing."""
    asked = await read(request, body.AssignProject)
    await sessions.assign_project(caller, SessionId(session_id), asked.project_id)
    return Response(status_code=204)


@router.get("/api/v1/sessions/{session_id}/trace_export")
async def export_trace(session_id: str, caller: Caller, sessions: Sessions) -> dict[str, str]:
    """Not offered, in the words in which a failed export is told: a refusal would be retried."""
    await sessions.get(caller, SessionId(session_id))
    return {
        "status": "failed",
        "error": "not supported: this server (MinT) keeps no timelines of sessions to export.",
    }


@router.post("/api/v1/sessions/search")
async def search_sessions(request: Request, caller: Caller, sessions: Sessions) -> dict[str, Any]:
    """The caller's sessions that fit, newest first; nobody sees another owner's."""
    asked = await read(request, body.SearchSessions)
    if asked.owner.type == "user" and caller not in asked.owner.owner_urns:
        return {"sessions": [], "next_cursor": None}
    at = asked.cursor
    # One more than the page holds: then there is another page.
    found = await sessions.search(
        caller,
        _query(asked),
        asked.limit + 1,
        (at.last_created_at, at.last_session_id) if at else None,
    )
    page = found[: asked.limit]
    last = page[-1].session if len(found) > len(page) else None
    return {
        "sessions": [_summary(session) for session in page],
        "next_cursor": last
        and {
            "last_created_at": last.created_at.isoformat(),
            "last_session_id": last.session_id,
        },
    }


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


def _query(asked: body.SearchSessions) -> SessionQuery:
    return SessionQuery(
        session_id=asked.session_id,
        display_name=asked.display_name,
        project_ids=asked.project_ids,
        user_metadata=asked.user_metadata,
        statuses=None
        if asked.statuses is None
        else [
            StatusQuery(type=status.type, reasons=tuple(status.reasons) if status.reasons else None)
            for status in asked.statuses
        ],
    )


def _summary(found: FoundSession) -> dict[str, Any]:
    session = found.session
    return {
        "session_id": session.session_id,
        "created_at": session.created_at.isoformat(),
        "owner": session.owner,
        "project_id": session.project_id or "",
        "status": _status(session),
        "checkpoints_count": found.checkpoints,
        "display_name": session.display_name,
        "user_metadata": dict(session.user_metadata),
        "checkpoint_storage_bytes": found.size_bytes,
    }


def _status(session: Session) -> dict[str, Any] | None:
    status = status_of(session)
    if status is None:
        return None
    if status != "client_finished":
        return {"type": status}
    return {
        "type": status,
        "reason": {"type": session.finish_reason},
        "detail": session.finish_detail,
    }
