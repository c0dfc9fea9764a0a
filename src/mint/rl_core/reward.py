"""Reward: the score of one response, and what a person may want to know about it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

from mint.recipe.rl.types import Logs, Metrics

LONGEST_LOG = 500
"""Characters of a metadata value that is neither a number nor a string."""

_TAKEN = ("reward", "score", "step")
"""Keys that mean something else in a row of metrics."""


@dataclass(frozen=True)
class Reward:
    """The score of one response.

    `float(reward)` is the score. Scores are used as they are: nothing is clipped.

    Raises:
        TypeError: the score is no number, or the metadata no mapping.
        ValueError: the score is not finite.
    """

    score: float
    """Higher is better; between -1 and 1 it suits the usual learning rates. Numbers of any kind are
    taken, also 0-d arrays and tensors, and become a float."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """For people who read about the run; a copy. Numbers become metrics, the rest is logged. A name
    that a run's own metrics have, such as `total_episodes`, stays the run's."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "score", as_score(self.score))
        object.__setattr__(self, "metadata", _copied(self.metadata))

    def __float__(self) -> float:
        return self.score


@dataclass(frozen=True)
class FailedReward(Reward):
    """What became of a scoring that failed, where the adapter says what it is then worth.

    A type of its own, since a reward's own metadata may have an "error", too.
    """

    kind: Literal["timeout", "error"] = field(kw_only=True)


def is_number(value: object) -> bool:
    """Whether `as_score` can read it: a number, or an array or tensor of one without dimensions."""
    return isinstance(_plain(value), Real | Decimal)


def as_score(value: Any) -> float:
    """A number of any kind as a float.

    Raises:
        TypeError: it is none.
        ValueError: it is not finite, or too large for a float.
    """
    if not is_number(value):
        shape = getattr(value, "shape", None)
        what = f"of shape {tuple(shape)}" if shape else f"{value!r:.100}"
        raise TypeError(f"score is {type(value).__name__} {what}: give one number, such as 1.0.")
    score = _as_float(value)
    if not math.isfinite(score):
        raise ValueError(
            f"score={value!r:.100} is not finite. One such score would spoil the advantages of its "
            "whole group: return a number, or raise and let error_score decide."
        )
    return score


def metrics_and_logs(reward: Reward) -> tuple[Metrics, Logs]:
    """The metadata as what is averaged and what is only shown.

    Numbers and bools are metrics; strings are logs; anything else, also a number that is not finite
    and would make every average useless, is logged as text.
    """
    metrics: Metrics = {}
    logs: Logs = {}
    for given, value in reward.metadata.items():
        key = f"meta_{given}" if given in _TAKEN else str(given)
        if isinstance(value, str):
            logs[key] = value
        elif is_number(value) and math.isfinite(number := _as_float(value)):
            plain = _plain(value)
            metrics[key] = int(plain) if isinstance(plain, int) else number
        else:
            logs[key] = _shown(value)
    return metrics, logs


def _plain(value: Any) -> Any:
    """What a numpy scalar, or an array or tensor without dimensions, holds; else the value itself.

    Told by its shape and not by its type: torch need not be there.
    """
    has_no_dimensions = getattr(value, "shape", None) is not None and len(value.shape) == 0
    return value.item() if has_no_dimensions and hasattr(value, "item") else value


def _as_float(value: Any) -> float:
    try:
        return float(_plain(value))
    except OverflowError:
        return math.inf


def _shown(value: Any) -> str:
    try:
        return repr(value)[:LONGEST_LOG]
    except Exception as error:  # a user's own __repr__: no reason to lose the episode
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _copied(metadata: Any) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(
            f"metadata={metadata!r:.100} is {type(metadata).__name__}: give a dict, such as "
            '{"predicted": 42}.'
        )
    return dict(metadata)
