"""SamplingParams, and what sampling returns."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mint.core.errors import ConfigError

Logprobs = NDArray[np.float32]

_MOST = (1 << 31) - 1
"""Of counts: what an int32 holds. Requests share arrays, and a larger one would not fit in them."""


class StopReason(StrEnum):
    STOP = "stop"
    """An end token, a stop id or a stop text."""
    LENGTH = "length"
    """max_tokens, or the end of the context."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """When to end a sequence besides its length.

    `eos`: the model's own end tokens end it too. Upstream's forms of `stop` map to this: absent,
    texts or ids leave eos on (a turn may end cleanly before its stop text comes); [] turns all
    stopping off, eos included.
    """

    eos: bool = True
    texts: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to draw tokens. Names and defaults are upstream's.

    Returned logprobs are natural logs under the temperature-scaled distribution, before top-k and
    top-p cut it (engine decision 8). With temperature 0 the most likely token is taken, and its
    logprob is the one at temperature 1.
    """

    max_tokens: int | None = None
    """None: as many as the context holds."""
    seed: int | None = None
    """Same seed, prompt and weights: same tokens, whatever else is running (as far as the kernels
    allow). Sample i of a request has a stream of its own."""
    temperature: float = 1.0
    top_k: int = -1
    """Keep the k most likely tokens; -1 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose mass reaches p; 1.0 keeps all."""
    stop: Stop = Stop()

    def __post_init__(self) -> None:
        if self.max_tokens is not None and not 1 <= self.max_tokens <= _MOST:
            raise ConfigError(f"max_tokens={self.max_tokens}: give 1 to {_MOST}, or leave it out.")
        if not math.isfinite(self.temperature) or self.temperature < 0:
            raise ConfigError(f"temperature={self.temperature}: give 0 (greedy) or more.")
        if not -1 <= self.top_k <= _MOST:
            raise ConfigError(f"top_k={self.top_k}: give -1 or 0 (off), or 1 to {_MOST}.")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p={self.top_p}: give a value in (0, 1].")
        if any(not text for text in self.stop.texts):
            raise ConfigError("stop contains an empty string, which would end every sequence.")


@dataclass(frozen=True, eq=False)
class TopK:
    """The k best tokens at each position, best first.

    Attributes:
        token_ids: int32 `[n, k]`; a row that was not scored is all 0.
        logprobs: float32 `[n, k]`, nats; a row that was not scored is all -99999.
    """

    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]


UNSCORED = -99999.0


@dataclass(frozen=True, eq=False)
class Cells:
    """A table of numbers with all of its cells, or (CSR) only some.

    Attributes:
        values: `[cells]`, row after row.
        shape: (rows, columns) of the whole table.
        crow: row i has the cells crow[i] up to crow[i + 1]; int64 `[rows + 1]`. None: all cells.
        col: the column of each cell, int64 `[cells]`; None with `crow`.
    """

    values: NDArray[Any]
    shape: tuple[int, int]
    crow: NDArray[np.int64] | None = None
    col: NDArray[np.int64] | None = None

    def starts(self) -> NDArray[np.int64]:
        """Where in `values` each row begins, and where the last one ends; `[rows + 1]`."""
        if self.crow is not None:
            return self.crow
        rows, columns = self.shape
        return np.arange(rows + 1, dtype=np.int64) * columns


@dataclass(frozen=True, eq=False)
class AltTokens:
    """Tokens drawn in place of each prompt token but the first, independently of each other.

    Attributes:
        token_ids: int32 `[n - 1, k]` for a prompt of n tokens.
        logprobs: float32 `[n - 1, k]`, nats.
    """

    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SampledSequence:
    """One sampled continuation.

    Attributes:
        tokens: int32 `[n]`; a stop token that ended it is the last of them.
        logprobs: float32 `[n]`, nats.
        topk: the most likely tokens at each of the n positions, if asked for.
    """

    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    stop_reason: StopReason
    topk: TopK | None = None
