"""A run folder as it is on disk, read with patience: a run that still goes on can be looked at."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mint.recipe.pages.transcription import Transcript, read_transcript
from mint.recipe.rl.run_health import REWARD as REWARD
from mint.recipe.rl.run_health import RunHealth, examine_run
from mint.recipe.stores.json_lines import read_lines

T = TypeVar("T")
Row = Mapping[str, Any]
"""One line of metrics.jsonl."""


@dataclass(frozen=True)
class RunRecord:
    """What a run has left so far."""

    folder: Path
    rows: Sequence[Row]
    """One per training step; evaluations on the final weights have a last row of their own."""
    checkpoints: Sequence[Mapping[str, Any]]
    health: RunHealth

    @property
    def config(self) -> Mapping[str, Any]:
        return self.health.config

    @property
    def steps(self) -> list[Row]:
        """The rows of training steps. A final evaluation's row repeats the last step's env/ keys, and
        would draw them twice."""
        return [row for row in self.rows if "progress/batch" in row] or list(self.rows)

    @property
    def last(self) -> Row:
        """The last row, which has the latest value of everything a script reads; empty if none."""
        return self.rows[-1] if self.rows else {}

    @property
    def is_finished(self) -> bool:
        """Whether the final checkpoint is in the ledger."""
        return any(record.get("final") for record in self.checkpoints)

    def series(self, key: str) -> list[tuple[float, float]]:
        """(step, value) of a metric, over the rows that have it as a finite number."""
        rows = self.steps if key.startswith("env/") else self.rows
        found = ((_finite(row.get("step")), _finite(row.get(key))) for row in rows)
        return [(step, value) for step, value in found if step is not None and value is not None]

    def latest(self, key: str) -> float | None:
        """The last finite value of a metric, or None."""
        series = self.series(key)
        return series[-1][1] if series else None

    def keys(self, prefix: str) -> list[str]:
        """Names of metrics that begin so, in the order in which they first appear."""
        return list(dict.fromkeys(k for row in self.rows for k in row if k.startswith(prefix)))


def read_run(folder: Path) -> RunRecord:
    """Read config, metrics and ledger of a run, and what the doctor says of it.

    Raises:
        DataFormatError: there is no metrics.jsonl; or config.json, or a line before the last, cannot
            be read.
    """
    return RunRecord(
        folder=folder,
        health=examine_run(folder),
        rows=read_lines(folder / "metrics.jsonl"),
        checkpoints=read_lines(folder / "checkpoints.jsonl"),
    )


_OURS = (
    "reward/", "by_group/", "frac/", "stop/", "total_episodes", "total_turns", "total_ac_tokens",
    "total_ob_tokens", "total_cached_ob_tokens", "ac_tokens", "ob_tokens", "turns_per",
    "datums_per", "max_tokens_reached", "context_overflow", "parse_error", "zero_reward_on_limit",
    "num_truncations",
)  # fmt: skip


def env_names(record: RunRecord) -> list[str]:
    """What the environment itself measures, such as `correct`."""
    names = (key.removeprefix("env/all/") for key in record.keys("env/all/"))
    return [name for name in names if not name.startswith(_OURS)]


def some_transcripts(folder: Path, most: int = 3) -> list[Transcript]:
    """Transcripts of training from the start to the end of a run, evenly chosen. Unreadable ones are
    passed over: they are an extra, and the page is wanted all the same."""
    found = []
    for path in evenly(sorted(folder.glob("iteration_*/train_logtree.json")), most):
        try:
            found.append(read_transcript(path))
        except ValueError:
            continue
    return found


def evenly(items: Sequence[T], most: int) -> Sequence[T]:
    """At most `most` of these, two or more, at even distances from the first to the last."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
