"""Sessions: opened, kept alive, ended, and what goes with them."""

import asyncio
from collections.abc import Mapping
from typing import Any

from mint.core.errors import NotFoundError, UserError
from mint.core.ids import Owner, SessionId
from mint.core.operations import ReleaseSampler, UnloadModel
from mint.server.service.link import Link
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
