"""When a run saves its weights, and what it writes down to go on from there."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mint.recipe.rl.config import Config
from mint.recipe.service import Service
from mint.recipe.stores.checkpoints import CheckpointRecord, Kind, append_record, save_paths

_log = logging.getLogger("mint.recipe.rl.train")


@dataclass(frozen=True)
class Walked:
    """Groups of the data set that the asynchronous schedule need not roll out again."""

    below: int = 0
    """All groups before this one."""
    ahead: tuple[int, ...] = ()
    """Single ones beyond it."""


@dataclass(frozen=True)
class Due:
    """A save to be made after a step."""

    name: str
    kind: Kind
    ttl_seconds: int | None
    marks: Mapping[str, bool]
    """What the record says of it: final, rolling."""


def save_due(config: Config, done: int, total: int) -> Due | None:
    """What is to be saved once `done` steps are done; the last step's save is the final one."""
    if done == total:
        return Due("final", "both", None, {"final": True})
    if config.save_every and done % config.save_every == 0:
        return Due(f"{done:06d}", "both", config.ttl_seconds, {})
    if config.rolling_save_every and done % config.rolling_save_every == 0:
        return Due(f"{done:06d}", "state", config.rolling_ttl_seconds, {"rolling": True})
    return None


class Saves:
    """The checkpoints of one run.

    A save is made on the server first (`make_due`) and written down later (`confirm`), when the
    step it belongs to has its row. Only what is written down is gone on from.

    Args:
        resumed: the record that the run goes on from.
    """

    def __init__(
        self,
        config: Config,
        service: Service,
        training_client: Any,
        resumed: CheckpointRecord | None = None,
    ) -> None:
        self.walked = _walked_of(resumed) if config.async_config else None
        """Noted with every save of the asynchronous schedule, which keeps it up to date."""
        self._config = config
        self._service = service
        self._training_client = training_client
        self._last_rolling = resumed.state_path if resumed and resumed.get("rolling") else None
        self._made: CheckpointRecord | None = None

    async def make_due(self, done: int, total: int) -> CheckpointRecord | None:
        """Save what is due after `done` steps, on the server."""
        due = save_due(self._config, done, total)
        if due is None:
            return None
        paths = await save_paths(self._training_client, due.name, due.kind, due.ttl_seconds)
        self._made = CheckpointRecord.from_dict(
            {"name": due.name, "batch": done, **due.marks, **paths}
        )
        return self._made

    async def confirm(self, run_so_far: Mapping[str, Any]) -> None:
        """Write down the save, if one was made, with the counters to go on from."""
        if self._made is None:
            return
        kept = {"run_so_far": dict(run_so_far), **_walked_json(self.walked)}
        record = CheckpointRecord.from_dict({**self._made.to_dict(), **kept})
        append_record(self._config.log_path, record)
        self._made = None
        await self._replace_rolling(record)

    async def _replace_rolling(self, record: CheckpointRecord) -> None:
        """Delete the rolling save before this one: a later save of any kind stands in for it."""
        replaced, self._last_rolling = self._last_rolling, None
        if record.get("rolling"):
            self._last_rolling = record.state_path
        if replaced is None:
            return
        try:
            await self._service.delete_checkpoint(replaced)
        except Exception as error:  # it has a time to live, so what stays behind goes by itself
            _log.warning("the rolling checkpoint %s could not be deleted: %s", replaced, error)


def _walked_json(walked: Walked | None) -> dict[str, Any]:
    return {} if walked is None else {"walked": [walked.below, list(walked.ahead)]}


def _walked_of(record: CheckpointRecord | None) -> Walked | None:
    """What a record says the asynchronous schedule had trained; None: it was another schedule."""
    kept = record.get("walked") if record else None
    return None if kept is None else Walked(kept[0], tuple(kept[1]))
