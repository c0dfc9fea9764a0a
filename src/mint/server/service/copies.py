"""Copies of checkpoints, under runs of their own."""

import asyncio
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from mint.core.checkpoints import CheckpointKind, CheckpointRef, check_ttl
from mint.core.errors import NotFoundError, ServerFaultError
from mint.core.ids import ModelId, Owner, SessionId, model_id
from mint.server.service.checkpoints import remove_folders
from mint.server.service.sessions import check_open
from mint.server.store.records import Checkpoint, NewCheckpoint, NewModel, NewSession
from mint.server.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The run of an open session that is to have the copy."""

    session_id: SessionId
    model_seq_id: int


@dataclass(frozen=True, kw_only=True)
class Project:
    """The copy gets a session of its own, in this project."""

    project_id: str
    idempotency_key: str | None
    """Equal over the retries of one call, which make one copy."""


class CopyService:
    """
    Args:
        data: the server's data folder; checkpoints' folders are below it.
        clock: gives the present time, zone-aware UTC.
    """

    def __init__(self, store: Store, data: Path, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._data = data
        self._clock = clock

    async def copy(
        self, owner: Owner, source: str, target: Slot | Project, ttl_seconds: int | None
    ) -> str:
        """Copy a checkpoint the owner may read, of whatever kind; returns the copy's path.

        It keeps kind and name, and outlives its source; the source's end is not its own.

        Raises:
            UserError: the source is no path, the time to live none, or the slot is taken.
            NotFoundError: no such source or session.
        """
        check_ttl(ttl_seconds)
        return await asyncio.to_thread(self._copy, owner, source, target, ttl_seconds)

    def _copy(
        self, owner: Owner, source: str, target: Slot | Project, ttl_seconds: int | None
    ) -> str:
        found = self._store.checkpoint(owner, str(CheckpointRef.parse(source)))
        run = self._run(owner, found, target)
        path = str(CheckpointRef(run.model_id, CheckpointKind(found.kind), found.name))
        if self._is_there(owner, path):
            return path  # the answer was lost, and this is its retry
        folder = f"checkpoints/{secrets.token_hex(16)}"
        _link(self._data / found.folder, self._data / folder)
        ends = None if ttl_seconds is None else self._clock() + timedelta(seconds=ttl_seconds)
        try:
            self._store.add_copy(run, _copy_of(found, owner, run.model_id, path, folder, ends))
        except BaseException:
            remove_folders(self._data, [folder])
            raise
        return path

    def _run(self, owner: Owner, source: Checkpoint, target: Slot | Project) -> NewModel:
        if isinstance(target, Slot):
            check_open(self._store, owner, target.session_id)
            session_id, number = target.session_id, target.model_seq_id
        else:
            session_id, number = self._session(owner, source, target), 0
        return NewModel(
            model_id=model_id(session_id, number),
            session_id=session_id,
            owner=owner,
            base_model=source.base_model,
            lora=source.lora,
            user_metadata={"copied_from": source.path},
        )

    def _session(self, owner: Owner, source: Checkpoint, target: Project) -> SessionId:
        """A session that is over at once: nothing of it ever lives."""
        key = target.idempotency_key
        session = self._store.create_session(
            NewSession(
                owner=owner,
                idempotency_key=f"copy/{key}" if key else None,
                tags=("copy",),
                display_name=f"copy of {source.path}",
                project_id=target.project_id,
            )
        )
        self._store.finish_session(owner, session.session_id, "success", "copied")
        return session.session_id

    def _is_there(self, owner: Owner, path: str) -> bool:
        try:
            self._store.checkpoint(owner, path)
        except NotFoundError:
            return False
        return True


def _link(source: Path, target: Path) -> None:
    """Give files that never change a second name; where the disk cannot, copy them."""
    if not source.is_dir():
        raise NotFoundError(f"the files of the checkpoint are missing from {source.name}.")

    def link(file: str, to: str) -> None:
        try:
            os.link(file, to)
        except OSError:
            shutil.copy2(file, to)

    try:
        shutil.copytree(source, target, copy_function=link)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise ServerFaultError(f"the checkpoint could not be copied: {error}") from error


def _copy_of(
    source: Checkpoint,
    owner: Owner,
    run: ModelId,
    path: str,
    folder: str,
    expires_at: datetime | None,
) -> NewCheckpoint:
    return NewCheckpoint(
        path=path,
        owner=owner,
        model_id=run,
        kind=source.kind,
        name=source.name,
        base_model=source.base_model,
        lora=source.lora,
        folder=folder,
        size_bytes=source.size_bytes,
        expires_at=expires_at,
        user_metadata=source.user_metadata,
    )
