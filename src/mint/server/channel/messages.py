"""The messages, one JSON object a line.

API process -> engine process: Hello (first), Wake, Cancel, Ended, Stop.
Engine process -> API process: Welcome (first), State, Ended, Stay.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from mint.core.ids import OperationId


@dataclass(frozen=True)
class Hello:
    """Proves that the sender could read `engine.json`."""

    token: str


@dataclass(frozen=True)
class Wake:
    """There is something new in the queue."""


@dataclass(frozen=True)
class Cancel:
    operation_id: OperationId


@dataclass(frozen=True)
class Stop:
    """This API process leaves. If it was the only one: finish the slice at hand and leave too; what
    is queued stays queued."""


@dataclass(frozen=True)
class Stay:
    """The answer to Stop of an engine that other API processes use."""


@dataclass(frozen=True)
class Welcome:
    pid: int
    fingerprint: str


@dataclass(frozen=True)
class State:
    """What the engine process is doing. `phase` is an EnginePhase's value."""

    phase: str
    detail: str
    capacity: dict[str, Any] | None = None
    doing: dict[str, Any] | None = None
    """What keeps the engine from its operations, as the fields of a health.Doing."""


@dataclass(frozen=True)
class Ended:
    """These operations have their result or failure in the store. From an API process (something
    was withdrawn there): the engine passes it on to the others."""

    operation_ids: list[OperationId]


Message = Hello | Wake | Cancel | Stop | Stay | Welcome | State | Ended

_BY_NAME: Mapping[str, type[Message]] = MappingProxyType(
    {kind.__name__: kind for kind in (Hello, Wake, Cancel, Stop, Stay, Welcome, State, Ended)}
)

MAX_LINE_BYTES = 1 << 20
"""Longer lines are no message of ours."""
ENDED_PER_LINE = 10_000
"""Ids in one Ended, so that a line stays far below the limit."""


def encode(message: Message) -> bytes:
    return json.dumps({"type": type(message).__name__, **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Read one line.

    Raises:
        ValueError: it is no message of ours.
    """
    try:
        told = json.loads(line)
        return _BY_NAME[told.pop("type")](**told)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a message between API and engine process: {line[:80]!r}") from error
