"""Runs and checkpoints: listed, shared, given an end, removed."""

import asyncio
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

from mint.core.checkpoints import CheckpointKind, CheckpointRef, check_ttl
from mint.core.ids import ModelId, Owner
from mint.server.service import references
from mint.server.store.records import Checkpoint, Model
from mint.server.store.store import Store

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """A model's life, as people list it."""

    model: Model
    last_checkpoint: Checkpoint | None
    last_sampler_checkpoint: Checkpoint | None


@dataclass(frozen=True)
class Page(Generic[T]):
    """Part of a listing."""

    items: list[T]
    total: int


class CheckpointService:
    """
    Args:
        data: the server's data folder; checkpoints' folders are below it.
        clock: gives the present time, zone-aware UTC.
    """

    def __init__(self, store: Store, data: Path, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._data = data
        self._clock = clock

    async def checkpoint(self, owner: Owner, path: str) -> Checkpoint:
        """A checkpoint by its path, in any spelling.

        Raises:
            UserError: it is no path.
            NotFoundError: unknown, expired, or another owner's private one.
        """
        return await asyncio.to_thread(references.find, self._store, owner, path)

    async def runs(
        self, owner: Owner, limit: int, offset: int, *, project_id: str | None = None
    ) -> Page[Run]:
        """The owner's models, the most recently used first; of one project if given."""

        def read() -> Page[Run]:
            models = self._store.list_models(owner, limit, offset, project_id=project_id)
            total = self._store.count_models(owner, project_id=project_id)
            return Page([self._run(model) for model in models], total)

        return await asyncio.to_thread(read)

    async def run(self, owner: Owner, model_id: ModelId) -> Run:
        """Raises: NotFoundError: unknown, or another owner's."""
        return await asyncio.to_thread(lambda: self._run(self._store.model(owner, model_id)))

    def _run(self, model: Model) -> Run:
        newest = self._store.newest_checkpoint
        return Run(
            model,
            newest(model.model_id, CheckpointKind.TRAINING),
            newest(model.model_id, CheckpointKind.SAMPLER),
        )

    async def checkpoints(
        self,
        owner: Owner,
        model_id: ModelId | None,
        limit: int,
        offset: int,
        *,
        kinds: Iterable[CheckpointKind] = CheckpointKind,
    ) -> Page[Checkpoint]:
        """The owner's checkpoints, newest first; of one model if given.

        Raises:
            NotFoundError: no such model.
        """

        def read() -> Page[Checkpoint]:
            if model_id is not None:
                self._store.model(owner, model_id)
            found = self._store.list_checkpoints(owner, model_id, limit, offset, kinds=kinds)
            return Page(found, self._store.count_checkpoints(owner, model_id, kinds=kinds))

        return await asyncio.to_thread(read)

    async def publish(self, owner: Owner, path: str, is_public: bool) -> None:
        """Let everybody with a key read a checkpoint, or nobody else any more; may be repeated.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        await asyncio.to_thread(self._store.set_public, owner, _spelled(path), is_public)

    async def set_ttl(self, owner: Owner, path: str, ttl_seconds: int | None) -> None:
        """Let a checkpoint end so many seconds from now; None: never.

        Raises:
            UserError: no time that can be.
            NotFoundError: unknown, or another owner's.
        """
        ttl = check_ttl(ttl_seconds)
        ends = None if ttl is None else self._clock() + timedelta(seconds=ttl)
        await asyncio.to_thread(self._store.set_expiry, owner, _spelled(path), ends)

    async def delete(self, owner: Owner, path: str) -> None:
        """Remove a checkpoint with its files.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        folder = await asyncio.to_thread(self._store.delete_checkpoint, owner, _spelled(path))
        await asyncio.to_thread(remove_folders, self._data, [folder])


def remove_folders(data: Path, folders: Iterable[str]) -> None:
    """Delete checkpoints' folders, which nothing names any more."""
    root = data.resolve()
    for folder in folders:
        path = (root / folder).resolve()
        if root in path.parents:  # never the data folder itself, nor anything outside it
            shutil.rmtree(path, ignore_errors=True)


def _spelled(path: str) -> str:
    return str(CheckpointRef.parse(path))
