"""How the engine process is doing, as the API process sees it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EnginePhase(StrEnum):
    STARTING = "starting"
    """Being spawned, or finding its models. Operations wait."""
    UP = "up"
    DOWN = "down"
    """Gone for good, until somebody restarts the server. Operations fail at once."""


@dataclass(frozen=True)
class Doing:
    """Something long that keeps the engine from its operations."""

    what: str
    since: float
    """Unix time; both processes have the same clock."""
    share: float | None = None
    """How much of it is done, 0..1, where that is known."""

    def told(self, now: float) -> str:
        """For people: "loading base model X: 40 %, 12 s so far"."""
        share = "" if self.share is None else f": {self.share:.0%}".replace("%", " %")
        return f"{self.what}{share}, {max(0, now - self.since):.0f} s so far"


@dataclass(frozen=True, kw_only=True)
class EngineHealth:
    """One look at the engine process."""

    state: EnginePhase
    detail: str
    """For people: what it is doing, or what happened to it."""
    pid: int | None = None
    capacity: Mapping[str, Any] | None = None
    """engine.protocol.Capacity as a dict, as of its last report; with `busy_s`, the seconds that this
    engine process has spent computing."""
    doing: Doing | None = None

    @property
    def busy_with(self) -> str | None:
        """What keeps the engine from its operations and for how long, for people."""
        return self.doing.told(time.time()) if self.doing else None
