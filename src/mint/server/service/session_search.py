"""Which sessions a search means. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mint.server.store.records import Session

REPORTED = ("success", "errored", "interrupted")
"""Ends that a client told us; any other end is ours ("expired")."""


@dataclass(frozen=True, kw_only=True)
class StatusQuery:
    """One status that will do. `reasons` None: whatever the client's reason was."""

    type: str
    reasons: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class SessionQuery:
    """What a session must be; what is None or empty asks for nothing.

    A session matches `session_id` or `display_name` where both are given, and all the rest.
    """

    session_id: str | None = None
    display_name: str | None = None
    """Words that its name must contain, each somewhere; case does not matter."""
    project_ids: Sequence[str] | None = None
    user_metadata: Mapping[str, str] = field(default_factory=dict)
    statuses: Sequence[StatusQuery] | None = None


def matches(session: Session, query: SessionQuery) -> bool:
    """Whether a search means this session."""
    return (
        _is_named(session, query)
        and (query.project_ids is None or (session.project_id or "") in query.project_ids)
        and all(session.user_metadata.get(k) == v for k, v in query.user_metadata.items())
        and (query.statuses is None or any(_has(session, status) for status in query.statuses))
    )


def status_of(session: Session) -> str | None:
    """ "active", "client_finished", or None: it ended and no client said so."""
    if session.finished_at is None:
        return "active"
    return "client_finished" if session.finish_reason in REPORTED else None


def _is_named(session: Session, query: SessionQuery) -> bool:
    if query.session_id is None and query.display_name is None:
        return True
    if query.session_id is not None and session.session_id == query.session_id:
        return True
    if query.display_name is None:
        return False
    name = (session.display_name or "").casefold()
    return all(word in name for word in query.display_name.casefold().split())


def _has(session: Session, status: StatusQuery) -> bool:
    if status_of(session) != status.type:
        return False
    return status.reasons is None or session.finish_reason in status.reasons
