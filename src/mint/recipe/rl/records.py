"""What a run leaves behind and shows: rows, transcripts, progress."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mint.recipe.rl.config import Config
from mint.recipe.rl.diagnosis import StepHealth
from mint.recipe.rl.episode_metrics import history_warning
from mint.recipe.rl.groups import Group
from mint.recipe.rl.rollout_logging import write_rollout_summaries
from mint.recipe.stores.console import Progress
from mint.recipe.stores.metrics_log import Logger
from mint.recipe.stores.run_folder import RunFolder
from mint.recipe.stores.timing import StepTimes
from mint.recipe.stores.transcripts import write_transcripts

_log = logging.getLogger("mint.recipe.rl.train")


class TokenIds:
    """Stands in for a tokenizer in a transcript: shows the ids themselves."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f"[{one}]" for one in ids)


class Records:
    """The run folder as the loop writes it, and the progress a person sees.

    Episodes are written in a thread beside the next step's work; one batch of them waits for the
    one before, so a slow disk slows the run and does not fill the memory.

    Args:
        tokenizer: finds the tokenizer that makes transcripts readable, or None; asked once, in a
            thread.
    """

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        logger: Logger,
        progress: Progress,
        tokenizer: Callable[[], Any],
    ) -> None:
        self._config = config
        self._folder = folder
        self._logger = logger
        self._progress = progress
        self._find_tokenizer = tokenizer
        self._tokenizer: Any = None
        self._writing: asyncio.Task[None] | None = None
        self._last_cause: str | None = None
        self._history_warned = False

    async def __aenter__(self) -> "Records":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._progress.close()
        await self.written()

    def log_row(self, row: Mapping[str, float], step: int) -> None:
        """One row of metrics.jsonl, flushed."""
        self._logger.log_metrics(dict(row), step)

    def log_times(self, times: StepTimes, step: int) -> None:
        """The spans of one step, in timing_spans.jsonl and as the config asks for charts."""
        self._folder.append_times(step, times, trace=self._config.enable_trace)
        every = self._config.span_chart_every
        if every and step % every == 0:
            self._folder.write_span_chart(step, times)

    def show_progress(self, step: int, row: Mapping[str, float], health: StepHealth) -> None:
        """Advance the bar; say why the step could not learn, unless the last one said the same."""
        advice = health.advice() if health.cause != self._last_cause else None
        self._last_cause = health.cause
        if advice is not None:
            _log.info("step %d: %s", step, advice)
        if not self._history_warned and (warning := history_warning(row)):
            self._history_warned = True
            _log.warning("%s", warning)
        self._progress.step(step, row, advice)

    async def write_groups(
        self, split: str, step: int, groups: Sequence[Group], transcripts: int
    ) -> None:
        """Begin to write the episodes of `groups` that were played; the first few to be read."""
        shown = min(transcripts, self._config.num_groups_to_log)
        played = [group for group in groups if group.trajectory_group is not None]
        if not played or not (shown or self._config.rollout_json_export):
            return
        await self.written()
        played.sort(key=lambda group: group.index)
        work = asyncio.to_thread(self._write, split, step, played, shown)
        self._writing = asyncio.create_task(work)

    async def written(self) -> None:
        """Wait until nothing is being written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    def _write(self, split: str, step: int, groups: Sequence[Group], shown: int) -> None:
        try:
            if self._config.rollout_json_export:
                write_rollout_summaries(self._folder.path, split, step, groups)
            if shown:
                self._tokenizer = self._tokenizer or self._find_tokenizer() or TokenIds()
                write_transcripts(self._folder.path, split, step, groups[:shown], self._tokenizer)
        except Exception:  # a full disk costs the transcript, not the run
            _log.warning(
                "the episodes of step %d (%s) were not written", step, split, exc_info=True
            )
