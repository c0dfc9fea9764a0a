"""Saves at the right moments, for a loop of one's own."""

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.service import Service
from mint.recipe.stores.checkpoints import CheckpointRecord, append_record, save_paths

log = logging.getLogger(__name__)


class CheckpointManager:
    """Periodic, rolling and final checkpoints of one run.

    A periodic one (state and sampler) is due every `save_every` steps, or `save_every_tokens` or
    `save_every_seconds` after the last one. A rolling one (state only) is due every
    `rolling_save_every` steps where no periodic one is, and replaces the rolling one before it, so a
    run can save often and keep little.

    Args:
        service_client: deletes replaced checkpoints.
        save_every: 0: never, as for the two that follow.
        ttl_seconds: of periodic checkpoints. The final one is kept.
        async_periodic_saves: let the loop go on while a periodic save is under way. What is saved is
            what the weights were: the save has its place in the order of calls. Its failure surfaces
            at the next save or in `finish`.
    """

    def __init__(
        self,
        training_client: Any,
        service_client: Any,
        log_path: str | Path,
        save_every: int = 0,
        save_every_tokens: int = 0,
        save_every_seconds: float = 0.0,
        ttl_seconds: int | None = 604800,
        rolling_save_every: int = 0,
        rolling_ttl_seconds: int | None = 7200,
        async_periodic_saves: bool = False,
    ) -> None:
        for name, value in (
            ("save_every", save_every), ("save_every_tokens", save_every_tokens),
            ("save_every_seconds", save_every_seconds), ("rolling_save_every", rolling_save_every),
        ):  # fmt: skip
            if value < 0:
                raise ConfigurationError(f"{name}={value}: give 0 (never) or more.")
        self._training_client = training_client
        self._service = Service(service_client)
        self._log_path = Path(log_path)
        self._save_every, self._rolling_save_every = save_every, rolling_save_every
        self._save_every_tokens, self._save_every_seconds = save_every_tokens, save_every_seconds
        self._ttl_seconds, self._rolling_ttl_seconds = ttl_seconds, rolling_ttl_seconds
        self._in_background = async_periodic_saves
        self._tokens_at_save, self._saved_at = 0, time.monotonic()
        self._rolling: str | None = None
        self._saving: asyncio.Task[CheckpointRecord] | None = None

    def is_due(self, step: int, tokens: int = 0) -> bool:
        """Whether a periodic save is due.

        Args:
            step: finished steps; none is due at 0.
            tokens: trained so far.
        """
        if step < 1:
            return False
        by_step = bool(self._save_every) and step % self._save_every == 0
        by_tokens = bool(self._save_every_tokens) and (
            tokens - self._tokens_at_save >= self._save_every_tokens
        )
        by_time = bool(self._save_every_seconds) and (
            time.monotonic() - self._saved_at >= self._save_every_seconds
        )
        return by_step or by_tokens or by_time

    async def maybe_save(
        self, step: int, loop_state: Mapping[str, Any], tokens: int = 0
    ) -> CheckpointRecord | None:
        """Save what is due after `step` finished steps.

        Returns:
            The record; None where nothing is due, or the save goes on in the background.
        """
        name = f"{step:06d}"
        if self.is_due(step, tokens):
            self._tokens_at_save, self._saved_at = tokens, time.monotonic()
            await self.finish()
            if self._in_background:
                self._saving = asyncio.create_task(self._save(name, loop_state))
                await asyncio.sleep(0)  # it submits now, before whatever the loop does next
                return None
            return await self._save(name, loop_state)
        if step >= 1 and self._rolling_save_every and step % self._rolling_save_every == 0:
            return await self._save_rolling(name, loop_state)
        return None

    async def save_final(self, loop_state: Mapping[str, Any]) -> CheckpointRecord:
        """Save the weights at the end, to be kept; then nothing is under way any more."""
        await self.finish()
        return await self._record("final", {**loop_state, "final": True}, "both", None)

    async def finish(self) -> None:
        """Wait for a save that goes on in the background; its failure is raised here."""
        saving, self._saving = self._saving, None
        if saving is not None:
            await saving

    async def _save(self, name: str, loop_state: Mapping[str, Any]) -> CheckpointRecord:
        return await self._record(name, loop_state, "both", self._ttl_seconds)

    async def _save_rolling(self, name: str, loop_state: Mapping[str, Any]) -> CheckpointRecord:
        state = {**loop_state, "rolling": True}
        record = await self._record(name, state, "state", self._rolling_ttl_seconds)
        replaced, self._rolling = self._rolling, record.state_path
        if replaced is not None:
            await self._delete(replaced)
        return record

    async def _record(
        self, name: str, loop_state: Mapping[str, Any], kind: Any, ttl_seconds: int | None
    ) -> CheckpointRecord:
        paths = await save_paths(self._training_client, name, kind, ttl_seconds)
        record = CheckpointRecord.from_dict({**loop_state, **paths, "name": name})
        append_record(self._log_path, record)
        return record

    async def _delete(self, path: str) -> None:
        try:
            await self._service.delete_checkpoint(path)
        except Exception as error:  # it has a time to live, and goes by itself
            log.warning("The rolling checkpoint %s could not be deleted: %s", path, error)
