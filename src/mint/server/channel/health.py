"""How the engine process is doing, as the API process sees it."""

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


@dataclass(frozen=True, kw_only=True)
class EngineHealth:
    """One look at the engine process."""

    state: EnginePhase
    detail: str
    """For people: what it is doing, or what happened to it."""
    pid: int | None = None
    capacity: Mapping[str, Any] | None = None
    """engine.protocol.Capacity as a dict, as of its last report."""
