"""Who runs what."""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter

from mint.server.http.deps import StatusOf, Who
from mint.server.service.status import Status
from mint.server.store.records import Model, QueueLine, Session

router = APIRouter()


@router.get("/api/v1/mint/status")
async def status(who: Who, status: StatusOf) -> dict[str, Any]:
    """Sessions, models, queue and engine: of all owners for an admin, else of the caller."""
    return _status(await status.status(who), datetime.now(UTC))


def _status(seen: Status, now: datetime) -> dict[str, Any]:
    def age_s(at: datetime) -> float:
        return round((now - at).total_seconds(), 1)

    engine = seen.engine
    return {
        "version": version("mint-rl"),
        "sees": "all" if seen.sees_all else "own",
        "engine": {
            "state": str(engine.state),
            "detail": engine.busy_with or engine.detail,
            "pid": engine.pid if seen.sees_all else None,
            "capacity": dict(engine.capacity) if engine.capacity is not None else None,
        },
        "sessions": [_session(session, age_s) for session in seen.sessions],
        "models": [_model(model, age_s) for model in seen.models],
        "queue": [_line(line, age_s) for line in seen.queue],
        "waiting_of_others": seen.waiting_of_others,
    }


def _session(session: Session, age_s: Callable[[datetime], float]) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "owner": session.owner,
        "name": session.display_name,
        "sdk_version": session.sdk_version,
        "age_s": age_s(session.created_at),
        "silent_s": age_s(session.last_seen_at),
    }


def _model(model: Model, age_s: Callable[[datetime], float]) -> dict[str, Any]:
    return {
        "model_id": model.model_id,
        "session_id": model.session_id,
        "owner": model.owner,
        "base_model": model.base_model,
        "rank": model.lora.rank,
        "state": model.state.value,
        "weights_version": model.weights_version,
        "idle_s": age_s(model.last_request_at),
    }


def _line(line: QueueLine, age_s: Callable[[datetime], float]) -> dict[str, Any]:
    return {
        "owner": line.owner,
        "model_id": line.model_id,
        "kind": line.kind,
        "status": line.status.value,
        "count": line.count,
        "oldest_s": age_s(line.oldest_at),
    }
