"""Sessions: opened, kept alive, ended, and what goes with them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mint.core.errors import NotFoundError, UserError
from mint.core.ids import Owner, SessionId
from mint.core.operations import ReleaseSampler, UnloadModel
from mint.server.service.link import Link
from mint.server.service.session_search import SessionQuery, matches
from mint.server.store.records import (
    Model,
    ModelState,
    NewOperation,
    NewSession,
    Sampler,
    Session,
)
from mint.server.store.store import Store
from mint.wire import payloads

_IN_MEMORY = (ModelState.CREATING, ModelState.READY)
_SEARCHED_AT_ONCE = 500
"""Sessions read from the store at a time."""


@dataclass(frozen=True)
class FoundSession:
    """A session as a search shows it, with what its runs have saved."""

    session: Session
    checkpoints: int
    size_bytes: int


class SessionEndedError(NotFoundError):
    """The session was finished; its client should stop."""


class SessionService:
    def __init__(self, store: Store, link: Link) -> None:
        self._store = store
        self._link = link

    async def create(self, new: NewSession) -> Session:
        return await asyncio.to_thread(self._store.create_session, new)

    async def heartbeat(self, owner: Owner, session_id: SessionId) -> None:
        """Note a sign of life.

        Raises:
            SessionEndedError: it is finished.
            NotFoundError: unknown, or another owner's.
        """
        if await asyncio.to_thread(self._store.touch_session, owner, session_id):
            return
        session = await asyncio.to_thread(self._store.session, owner, session_id)
        raise SessionEndedError(f"session {session_id!r} ended at {session.finished_at}.")

    async def finish(
        self, owner: Owner, session_id: SessionId, reason: str, detail: str | None
    ) -> None:
        """End a session: its models and samplers leave memory once what is queued for them is done.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        await asyncio.to_thread(self._finish, owner, session_id, reason, detail)
        self._link.wake()

    def _finish(self, owner: Owner, session_id: SessionId, reason: str, detail: str | None) -> None:
        self._store.finish_session(owner, session_id, reason, detail)
        models, samplers = self._store.session_objects(session_id)
        for sampler in samplers:
            self._store.enqueue(_release(sampler))
        for model in models:
            if model.state in _IN_MEMORY:
                self._store.enqueue(_unload(model))

    async def get(
        self, owner: Owner, session_id: SessionId
    ) -> tuple[Session, list[Model], list[Sampler]]:
        """A session with its models and samplers.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        session = await asyncio.to_thread(self._store.session, owner, session_id)
        models, samplers = await asyncio.to_thread(self._store.session_objects, session_id)
        return session, models, samplers

    async def assign_project(self, owner: Owner, session_id: SessionId, project_id: str) -> None:
        """Put a session into a project, which is a label to list by.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        await asyncio.to_thread(self._store.assign_project, owner, session_id, project_id)

    async def search(
        self, owner: Owner, query: SessionQuery, limit: int, before: tuple[datetime, str] | None
    ) -> list[FoundSession]:
        """The owner's sessions that a query means, newest first, from behind one on."""
        return await asyncio.to_thread(self._search, owner, query, limit, before)

    def _search(
        self, owner: Owner, query: SessionQuery, limit: int, before: tuple[datetime, str] | None
    ) -> list[FoundSession]:
        found: list[Session] = []
        while len(found) < limit:
            sessions = self._store.sessions_before(owner, before, _SEARCHED_AT_ONCE)
            found += [session for session in sessions if matches(session, query)]
            if len(sessions) < _SEARCHED_AT_ONCE:
                break
            before = (sessions[-1].created_at, sessions[-1].session_id)
        stored = self._store.session_storage([session.session_id for session in found[:limit]])
        return [
            FoundSession(session, *stored.get(session.session_id, (0, 0)))
            for session in found[:limit]
        ]

    async def list(self, owner: Owner, limit: int, offset: int) -> list[Session]:
        return await asyncio.to_thread(self._store.list_sessions, owner, limit, offset)


def check_open(store: Store, owner: Owner, session_id: SessionId) -> None:
    """Refuse work for a session that has ended. For threads.

    Raises:
        NotFoundError: unknown, or another owner's.
        UserError: it has ended.
    """
    session = store.session(owner, session_id)
    if session.finished_at is not None:
        raise UserError(
            f"session {session_id!r} ended at {session.finished_at:%Y-%m-%d %H:%M:%S} UTC, and its "
            "live weights with it. Open a new client; training goes on from a saved checkpoint "
            "with create_training_client_from_state_with_optimizer(path)."
        )


def text_values(metadata: Mapping[str, Any]) -> dict[str, str]:
    """User metadata with text as its values: clients refuse anything else when they read it."""
    return {key: value if isinstance(value, str) else str(value) for key, value in metadata.items()}


def _unload(model: Model) -> NewOperation:
    operation = UnloadModel(model_id=model.model_id)
    return NewOperation(
        owner=model.owner,
        kind=UnloadModel.__name__,
        payload=payloads.encode(operation),
        scope=f"{model.model_id}/end",
        seq_id=0,  # finishing a session again queues nothing again
        model_id=model.model_id,
    )


def _release(sampler: Sampler) -> NewOperation:
    operation = ReleaseSampler(sampler_id=sampler.sampler_id)
    return NewOperation(
        owner=sampler.owner,
        kind=ReleaseSampler.__name__,
        payload=payloads.encode(operation),
        scope=f"{sampler.sampler_id}/end",
        seq_id=0,
        sampler_id=sampler.sampler_id,
    )
