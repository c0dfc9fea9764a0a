"""The folder that a run leaves: opened, described, and set right before a resume.

config.json                     the config
metrics.jsonl                   one row per step
checkpoints.jsonl               what was saved (stores/checkpoints.py)
logs.log                        our log lines
timing_spans.jsonl              where the seconds of each step went
iteration_%06d/                 what was said in a step
metrics.jsonl.pre_resume_%06d   rows that a resume from that step runs again
"""

import json
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.stores.json_lines import append_line, append_lines, read_lines
from mint.recipe.stores.jsonable import jsonable
from mint.recipe.stores.span_chart import write_span_chart
from mint.recipe.stores.timing import StepTimes
from mint.recipe.stores.whole_files import write_whole

log = logging.getLogger(__name__)


class RunFolder:
    """A run's log folder; made if it is not there."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the folder to this run: two that write into one mix their rows and checkpoints.

        The lock ends with the process, however that ends. Where the file system has none, nothing
        is checked.

        Raises:
            ConfigurationError: another run holds it, here or in another process.
        """
        import fcntl  # not on every system that can read a run folder

        directory = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(directory)
            raise ConfigurationError(
                f"log_path={str(self.path)!r}: another run is writing there. Wait for it, or give "
                "this one another folder."
            ) from None
        except OSError as error:
            log.info("%s cannot be locked (%s).", self.path, error)
        try:
            yield
        finally:
            os.close(directory)

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "logs.log"

    def write_config(self, config: Any) -> None:
        """Write config.json; its values are looked at and nothing more (stores/jsonable.py)."""
        text = json.dumps(jsonable(config), indent=2, ensure_ascii=False)
        write_whole(self.path / "config.json", text + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl, oldest first."""
        return read_lines(self.metrics)

    def append_row(self, row: dict[str, Any]) -> None:
        """Append a row to metrics.jsonl and flush it; what is not finite is written as null."""
        append_line(self.metrics, row)

    def move_rows_from(self, step: int) -> int:
        """Move rows of `step` and later ones away, since a resume from there runs those steps again.

        They go to `metrics.jsonl.pre_resume_<step>`, so that every step has one row in metrics.jsonl
        and nothing is lost. A half-written last row goes nowhere.

        Returns:
            How many were moved.
        """
        rows = self.rows()
        kept = [row for row in rows if not _is_from(row, step)]
        moved = [row for row in rows if _is_from(row, step)]
        aside = self.path / f"{self.metrics.name}.pre_resume_{step:06d}"
        if moved:
            append_lines(aside, moved)
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in kept]
            write_whole(self.metrics, "".join(lines))
        return len(moved)

    def append_times(self, step: int, times: StepTimes, *, trace: bool = False) -> None:
        """Append the spans of a step to timing_spans.jsonl.

        Args:
            trace: also to trace_events.jsonl, one event a line, as trace viewers read them.
        """
        spans = sorted(times.spans, key=lambda span: span.start_s)
        append_line(
            self.path / "timing_spans.jsonl",
            {
                "step": step,
                "began_at": times.began_at,
                "spans": [
                    {"name": s.name, "start_s": s.start_s, "duration_s": s.duration_s}
                    for s in spans
                ],
            },
        )
        if trace:
            append_lines(self.path / "trace_events.jsonl", times.trace_events(step))

    def write_span_chart(self, step: int, times: StepTimes) -> None:
        """Draw the spans of a step: timing_gantt_<step>.html."""
        write_span_chart(self.path, step, times)


def iteration_folder(folder: Path, number: int) -> Path:
    """Where a step's transcripts and rollout summaries go."""
    return folder / f"iteration_{number:06d}"


def git_revision(folder: str | Path | None = None) -> str | None:
    """The commit that a folder (the working directory) is at; None outside of a repository."""
    git = shutil.which("git")
    if git is None:
        return None
    asked = [git, "-C", str(folder or Path.cwd()), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def _is_from(row: dict[str, Any], step: int) -> bool:
    at = row.get("step")
    return isinstance(at, (int, float)) and at >= step
