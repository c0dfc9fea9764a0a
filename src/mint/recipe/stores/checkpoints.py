"""The ledger of a run's checkpoints, `checkpoints.jsonl`, and how one is saved.

A line is appended only after the server has confirmed the save, so whatever the ledger names is
there to resume from (until its time to live is over).
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from mint.recipe.exceptions import CheckpointError, ConfigurationError, DataFormatError
from mint.recipe.service import submit_save_state, submit_save_weights_for_sampler
from mint.recipe.stores.json_lines import append_line, read_lines
from mint.recipe.stores.timing import span

T = TypeVar("T")
Kind = Literal["state", "sampler", "both"]
"""What is saved: weights with the optimizer, to resume from; weights to sample from; or both."""

LEDGER = "checkpoints.jsonl"


@dataclass(frozen=True)
class CheckpointRecord:
    """One line of the ledger. None means that the line does not have the key."""

    name: str
    batch: int | None = None
    """The next step to run. In supervised runs: the next batch within the epoch."""
    epoch: int | None = None
    final: bool | None = None
    state_path: str | None = None
    sampler_path: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Whatever else the line has: `rolling`, `step`, a loop's own counters."""

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> "CheckpointRecord":
        """Raises DataFormatError if the line has no name."""
        if not isinstance(line.get("name"), str):
            raise DataFormatError(f"a checkpoint without a name: {dict(line)}")
        known = {key: line[key] for key in _KEYS if key in line}
        extra = {key: value for key, value in line.items() if key not in _KEYS}
        return cls(**known, extra=extra)

    def to_dict(self) -> dict[str, Any]:
        """The line as it is written."""
        known = {key: getattr(self, key) for key in _KEYS}
        return {key: value for key, value in {**known, **self.extra}.items() if value is not None}

    def has(self, key: str) -> bool:
        """Whether the line has a value under this key."""
        return self.get(key) is not None

    def get(self, key: str, default: Any = None) -> Any:
        """The line's value under a key, its own or an extra one."""
        return self.to_dict().get(key, default)


_KEYS = ("name", "batch", "epoch", "final", "state_path", "sampler_path")


def load_checkpoints_file(log_dir: str | Path) -> list[CheckpointRecord]:
    """The ledger of a run, oldest first; empty without one. A half-written last line is left out.

    Raises:
        CheckpointError: another line cannot be read; it is named by its number.
    """
    try:
        lines = read_lines(Path(log_dir).expanduser() / LEDGER)
        return [CheckpointRecord.from_dict(line) for line in lines]
    except DataFormatError as error:
        raise CheckpointError(str(error)) from error


def get_last_checkpoint(
    log_dir: str | Path, required_key: str = "state_path"
) -> CheckpointRecord | None:
    """The newest checkpoint that has `required_key`: state_path to resume, sampler_path to sample."""
    records = load_checkpoints_file(log_dir)
    return next((record for record in reversed(records) if record.has(required_key)), None)


def append_record(log_path: str | Path, record: CheckpointRecord) -> None:
    """Write one line into the ledger, flushed."""
    append_line(Path(log_path).expanduser() / LEDGER, record.to_dict())


async def save_paths(
    training_client: Any, name: str, kind: Kind, ttl_seconds: int | None
) -> dict[str, str]:
    """Save on the server, and write nothing down.

    All is submitted before the first wait, so what is saved is what the weights are now.

    Returns:
        `state_path` and/or `sampler_path`.
    """
    submits = {"state_path": submit_save_state, "sampler_path": submit_save_weights_for_sampler}
    wanted = {"state": ["state_path"], "sampler": ["sampler_path"], "both": list(submits)}
    if kind not in wanted:
        raise ConfigurationError(f"kind={kind!r}: give state, sampler or both.")
    with span("save_checkpoint"):
        saves = {key: submits[key](training_client, name, ttl_seconds) for key in wanted[kind]}
        return {key: (await save).path for key, save in saves.items()}


async def save_checkpoint_async(
    training_client: Any,
    name: str,
    log_path: str | Path,
    loop_state: Mapping[str, Any],
    kind: Kind = "state",
    ttl_seconds: int | None = None,
) -> dict[str, str]:
    """Save on the server, then write the line.

    Args:
        loop_state: where the loop stands: `batch`, `epoch`, and any keys of its own.
        ttl_seconds: after which the server deletes it. None: never.

    Returns:
        `state_path` and/or `sampler_path`.
    """
    paths = await save_paths(training_client, name, kind, ttl_seconds)
    append_record(log_path, CheckpointRecord.from_dict({**loop_state, **paths, "name": name}))
    return paths


def save_checkpoint(
    training_client: Any,
    name: str,
    log_path: str | Path,
    loop_state: Mapping[str, Any],
    kind: Kind = "state",
    ttl_seconds: int | None = None,
) -> dict[str, str]:
    """save_checkpoint_async for code that is not async; it blocks until the server has saved."""
    return blocking(
        save_checkpoint_async(training_client, name, log_path, loop_state, kind, ttl_seconds)
    )


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """The result of async work, from code that is not async: in a thread of its own, since this one
    may have a loop that runs."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="mint-recipe-blocking")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
