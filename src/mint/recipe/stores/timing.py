"""Where the seconds of a step go: spans, recorded by whatever code runs within the step.

The step's record is carried by a context variable, so rollout code needs no argument for it, and two
runs side by side do not mix.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any


@dataclass(frozen=True)
class Span:
    """One stretch of a step."""

    name: str
    start_s: float
    """Since the step began; below 0 if it began before that."""
    duration_s: float


class StepTimes:
    """The spans of one step. Spans of concurrent rollouts overlap, so totals may exceed the step."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.began_at = time.time()
        """Seconds since 1970."""
        self._began = time.perf_counter()
        self._total_s: float | None = None

    def add(self, name: str, began: float, ended: float) -> None:
        """Record a span between two readings of time.perf_counter."""
        self.spans.append(Span(name, began - self._began, ended - began))

    def close(self) -> None:
        """End the step, if it has not ended; spans that end later are still recorded."""
        if self._total_s is None:
            self._total_s = time.perf_counter() - self._began

    def metrics(self) -> dict[str, float]:
        """Seconds: `time/<span>` where there was one, else `time/<span>:total`, `:count`, `:mean`
        and `:max`; and `time/total`."""
        by_name: dict[str, list[float]] = {}
        for span in self.spans:
            by_name.setdefault(span.name, []).append(span.duration_s)
        found: dict[str, float] = {}
        for name, durations in by_name.items():
            found.update(_summary(f"time/{name}", durations))
        running = time.perf_counter() - self._began
        found["time/total"] = running if self._total_s is None else self._total_s
        return found

    def rows(self) -> list[list[Span]]:
        """The spans in rows, so that none overlaps another of its row: as few rows as there are
        spans at once."""
        free: list[tuple[float, int]] = []  # a heap of (when a row is free, which)
        rows: list[list[Span]] = []
        for each in sorted(self.spans, key=lambda span: span.start_s):
            if free and free[0][0] <= each.start_s:
                row = heappop(free)[1]
            else:
                row = len(rows)
                rows.append([])
            rows[row].append(each)
            heappush(free, (each.start_s + each.duration_s, row))
        return rows

    def trace_events(self, step: int) -> list[dict[str, Any]]:
        """The spans as complete events of the trace event format, in microseconds."""
        return [
            {
                "name": each.name, "ph": "X", "pid": os.getpid(), "tid": number,
                "ts": (self.began_at + each.start_s) * 1e6, "dur": each.duration_s * 1e6,
                "args": {"step": step},
            }
            for number, row in enumerate(self.rows())
            for each in row
        ]  # fmt: skip


def _summary(key: str, durations: list[float]) -> dict[str, float]:
    if len(durations) == 1:
        return {key: durations[0]}
    total = sum(durations)
    return {
        f"{key}:total": total,
        f"{key}:count": len(durations),
        f"{key}:mean": total / len(durations),
        f"{key}:max": max(durations),
    }


@dataclass
class _Timeline:
    """Where spans are recorded: in a step, or between two."""

    step: StepTimes | None = None
    between: list[tuple[str, float, float]] = field(default_factory=list)
    """Name, beginning and end of spans that wait for the next step."""

    def add(self, name: str, began: float, ended: float) -> None:
        if self.step is None:
            self.between.append((name, began, ended))
        else:
            self.step.add(name, began, ended)


_current: ContextVar[_Timeline | None] = ContextVar("mint_recipe_timeline", default=None)


@contextmanager
def timeline() -> Iterator[None]:
    """For work that outlives the step it was started in, such as rollouts beside training: a span in
    here, and in tasks and threads started in here, belongs to the step in which it ends."""
    token = _current.set(_Timeline())
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def measuring() -> Iterator[StepTimes]:
    """Record the spans of this context, and of tasks and threads started in it, as one step's.

    In a `timeline` those of all its tasks, whenever they were started.
    """
    line, times = _current.get(), StepTimes()
    if line is None or line.step is not None:
        token = _current.set(_Timeline(times))
        try:
            yield times
        finally:
            times.close()
            _current.reset(token)
        return
    line.step = times
    for name, began, ended in line.between:
        times.add(name, began, ended)
    line.between.clear()
    try:
        yield times
    finally:
        times.close()
        line.step = None


@contextmanager
def span(name: str) -> Iterator[None]:
    """Record a stretch of the current step; without a step nothing is recorded."""
    line = _current.get()
    if line is None:
        yield
        return
    began = time.perf_counter()
    try:
        yield
    finally:
        line.add(name, began, time.perf_counter())
