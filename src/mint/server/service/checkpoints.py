"""Runs and checkpoints, for listing and removal."""

import asyncio
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from mint.core.checkpoints import CheckpointKind, CheckpointRef
from mint.core.ids import ModelId, Owner
from mint.server.store.records import Checkpoint, Model
from mint.server.store.store import Store

T = TypeVar("T")

_ALL = 1_000_000
"""Listings tell the total; the store counts by listing."""


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
    """

    def __init__(self, store: Store, data: Path) -> None:
        self._store = store
        self._data = data

    async def checkpoint(self, owner: Owner, path: str) -> Checkpoint:
        """A checkpoint by its path, in any spelling.

        Raises:
            UserError: it is no path.
            NotFoundError: unknown, expired, or another owner's private one.
        """
        return await asyncio.to_thread(
            self._store.checkpoint, owner, str(CheckpointRef.parse(path))
        )

    async def runs(self, owner: Owner, limit: int, offset: int) -> Page[Run]:
        """The owner's models, the most recently used first."""
        return await asyncio.to_thread(self._runs, owner, limit, offset)

    def _runs(self, owner: Owner, limit: int, offset: int) -> Page[Run]:
        models = self._store.list_models(owner, _ALL, 0)
        shown = models[offset : offset + limit]
        return Page([self._run(owner, model) for model in shown], len(models))

    async def run(self, owner: Owner, model_id: ModelId) -> Run:
        """Raises: NotFoundError: unknown, or another owner's."""

        def read() -> Run:
            return self._run(owner, self._store.model(owner, model_id))

        return await asyncio.to_thread(read)

    def _run(self, owner: Owner, model: Model) -> Run:
        saved = self._store.list_checkpoints(owner, model.model_id, _ALL, 0)
        return Run(
            model,
            _newest(saved, CheckpointKind.TRAINING),
            _newest(saved, CheckpointKind.SAMPLER),
        )

    async def checkpoints(
        self, owner: Owner, model_id: ModelId | None, limit: int, offset: int
    ) -> Page[Checkpoint]:
        """The owner's checkpoints, newest first; of one model if given."""
        found = await asyncio.to_thread(self._store.list_checkpoints, owner, model_id, _ALL, 0)
        return Page(found[offset : offset + limit], len(found))

    async def delete(self, owner: Owner, path: str) -> None:
        """Remove a checkpoint with its files.

        Raises:
            NotFoundError: unknown, or another owner's.
        """
        ref = str(CheckpointRef.parse(path))
        folder = await asyncio.to_thread(self._store.delete_checkpoint, owner, ref)
        await asyncio.to_thread(remove_folders, self._data, [folder])


def remove_folders(data: Path, folders: Iterable[str]) -> None:
    """Delete checkpoints' folders, which nothing names any more."""
    root = data.resolve()
    for folder in folders:
        path = (root / folder).resolve()
        if root in path.parents:  # never the data folder itself, nor anything outside it
            shutil.rmtree(path, ignore_errors=True)


def _newest(saved: list[Checkpoint], kind: CheckpointKind) -> Checkpoint | None:
    return next((checkpoint for checkpoint in saved if checkpoint.kind == kind.value), None)
