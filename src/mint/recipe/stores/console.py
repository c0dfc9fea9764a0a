"""What a person sees while a run goes on: a bar on a terminal, a line a step elsewhere. On stderr
only, since stdout is the script's."""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REWARD = "env/all/reward/total"
NLL = "train_mean_nll"


@dataclass(frozen=True)
class Pace:
    """How a run gets on."""

    done: int
    """Steps that are finished, earlier processes' included."""
    total: int
    done_here: int
    elapsed_s: float
    """Of this process."""

    @property
    def left_s(self) -> float | None:
        """Seconds to the end at the pace so far; None before the first step."""
        if self.done_here == 0:
            return None
        return (self.total - self.done) * self.elapsed_s / self.done_here


def progress_line(pace: Pace, metrics: Mapping[str, Any], step_s: float) -> str:
    """A step in words, as "step 3/20, reward 0.250, 812 tokens/s, 4.1 s, about 1:10 left"."""
    parts = [f"step {pace.done}/{pace.total}"]
    for key, name in ((REWARD, "reward"), (NLL, "nll")):
        if isinstance(metrics.get(key), (int, float)):
            parts.append(f"{name} {metrics[key]:.3f}")
    sampled = metrics.get("tokens/sampled")
    if isinstance(sampled, (int, float)) and step_s > 0:
        parts.append(f"{sampled / step_s:,.0f} tokens/s")
    parts.append(f"{step_s:.1f} s")
    if pace.left_s is not None and pace.done < pace.total:
        parts.append(f"about {clock(pace.left_s)} left")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """1:05 for 65 seconds, 2:00:00 for two hours."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"


class Progress:
    """The display of one run.

    On a terminal the first run has a bar; one that starts while the bar is there has lines, with its
    title in front, so that several may go on side by side.

    Args:
        total_steps: of the whole run.
        title: which run it is.
    """

    def __init__(self, total_steps: int, title: str) -> None:
        self._total, self._title = total_steps, title
        self._began = self._last = time.monotonic()
        self._done_here = 0
        self._bar = _Bar.take(total_steps, title)

    def step(self, step: int, metrics: Mapping[str, Any], health: str | None) -> None:
        """Show a finished step.

        Args:
            step: from 0.
            metrics: its row.
            health: a sentence for the reader, if there is something to say.
        """
        now = time.monotonic()
        self._done_here += 1
        pace = Pace(step + 1, self._total, self._done_here, now - self._began)
        line = progress_line(pace, metrics, now - self._last)
        self._last = now
        if self._bar is None:
            self._write(line)
        else:
            self._bar.show(step + 1, line)
        if health is not None:
            self._write(health)

    def close(self) -> None:
        """End the display; more than once does no harm."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _write(self, line: str) -> None:
        sys.stderr.write(f"{self._title}: {line}\n")
        sys.stderr.flush()


class _Bar:
    """A bar at the foot of the terminal. There is one terminal, so there is one bar."""

    _free = threading.Lock()

    @classmethod
    def take(cls, total_steps: int, title: str) -> "_Bar | None":
        """A bar, unless stderr is no terminal, or another run has it."""
        if not sys.stderr.isatty() or not cls._free.acquire(blocking=False):
            return None
        try:
            return cls(total_steps, title)
        except BaseException:
            cls._free.release()
            raise

    def __init__(self, total_steps: int, title: str) -> None:
        from rich.console import Console  # only where there is a terminal to draw on
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[title]}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            refresh_per_second=4,
            # On the same terminal, what a script prints goes above the bar. Elsewhere it must stay
            # on stdout, which rich would lead to stderr.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._task = self._progress.add_task(
            f"step 0/{total_steps}", total=total_steps, title=title
        )
        self._progress.start()

    def show(self, done: int, line: str) -> None:
        self._progress.update(self._task, completed=done, description=line)

    def close(self) -> None:
        self._progress.stop()
        self._free.release()
