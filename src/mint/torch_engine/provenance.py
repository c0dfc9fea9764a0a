"""Provenance: which weights drew the tokens that come back to be trained on, and how closely the
trainer agrees with the sampler about them.

A client sends tokens and logprobs back as it got them: floats pass JSON and protobuf unchanged. So a
sampled sequence is known again by its bits, wherever in a datum it lies, with any SDK.

Shapes: S tokens of a sampled sequence, P (position, target) pairs of a pass.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mint.core.ids import ModelId

logger = logging.getLogger(__name__)

TOKENS_KEPT = 1 << 20
"""Of the latest sequences: some 20 MB, and more than one step of a large run samples."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Origin:
    """What sequences were drawn with: one version of a model's weights, at one temperature."""

    model_id: ModelId
    version: int
    temperature: float
    """As float32: what it is on every wire."""

    @classmethod
    def of(cls, model_id: ModelId, version: int, temperature: float) -> "Origin":
        return cls(model_id, version, float(np.float32(temperature)))


@dataclass(frozen=True, eq=False)
class _Drawn:
    keys_S: Ints
    logprobs_S: Floats
    anchor: int
    """The token it is looked up by."""


@dataclass(frozen=True)
class Parity:
    """Gaps |trainer's logprob - sampler's|, in nats, over the tokens that were known again."""

    mean: float
    largest: float
    tokens: int

    @property
    def metrics(self) -> Mapping[str, float]:
        return {
            "parity/logprob_gap:mean": self.mean,
            "parity/logprob_gap:max": self.largest,
            "parity/tokens:sum": float(self.tokens),
        }


class Provenance:
    """A bounded record of what was sampled. The oldest leave first."""

    def __init__(self, tokens_kept: int = TOKENS_KEPT) -> None:
        self._room = tokens_kept
        self._held = 0
        self._order: deque[tuple[Origin, _Drawn]] = deque()
        self._drawn: dict[Origin, dict[int, list[_Drawn]]] = {}

    def note(self, origin: Origin, tokens_S: NDArray[np.int32], logprobs_S: Floats) -> None:
        """A sequence has ended. One without a single uncertain token tells nothing and is left out;
        one that was drawn before (greedily, or a short one) is here already."""
        if not len(tokens_S) or not logprobs_S.any():
            return
        keys_S = _keys(tokens_S, logprobs_S)
        drawn = _Drawn(keys_S, logprobs_S, _anchor(logprobs_S))
        same = self._drawn.setdefault(origin, defaultdict(list))[int(keys_S[drawn.anchor])]
        if any(np.array_equal(other.keys_S, keys_S) for other in same):
            return
        same.append(drawn)
        self._order.append((origin, drawn))
        self._held += len(tokens_S)
        while self._held > self._room:
            self._drop(*self._order.popleft())

    def compare(
        self, origin: Origin, targets_P: Ints, sampled_P: Floats, logprobs_P: Floats
    ) -> Parity | None:
        """The gaps of what `origin` drew; None if nothing of it is here.

        Args:
            targets_P, sampled_P: the pass's targets, and the logprobs that came with them.
            logprobs_P: the trainer's.
        """
        known = self._drawn.get(origin)
        if not known:
            return None
        keys_P = _keys(targets_P, sampled_P)
        is_drawn_P = np.zeros(len(keys_P), dtype=bool)
        for start, drawn in _found(keys_P, known):
            is_drawn_P[start : start + len(drawn.keys_S)] = True
        if not is_drawn_P.any():
            return None
        gap = np.abs(logprobs_P[is_drawn_P].astype(np.float64) - sampled_P[is_drawn_P])
        return Parity(float(gap.mean()), float(gap.max()), len(gap))

    def of_pass(
        self,
        origin: Origin,
        targets_P: Ints,
        sampled_P: Floats | None,
        logprobs_P: Floats,
        threshold: float,
    ) -> Mapping[str, float]:
        """The pass's metrics of parity; none where nothing it trained on was sampled here from the
        same weights. A gap above the threshold (nats) is told in the log."""
        if sampled_P is None:
            return {}
        parity = self.compare(origin, targets_P, sampled_P, logprobs_P)
        if parity is None:
            return {}
        if not parity.largest <= threshold:
            logger.warning(
                "model %s, version %d: trainer and sampler differ by up to %.3g nats (mean %.3g, "
                "%d tokens), more than %.3g, over the same tokens and weights. Ratios are off by "
                "that much. Look at the dtype (bfloat16 costs most of it), at `mint doctor "
                "--parity`, and at numerics.md.",
                origin.model_id, origin.version, parity.largest, parity.mean, parity.tokens,
                threshold,
            )  # fmt: skip
        return parity.metrics

    def forget_before(self, model_id: ModelId, version: int) -> None:
        """A model has moved on: what earlier versions drew is compared with nothing any more."""
        gone = {o for o in self._drawn if o.model_id == model_id and o.version < version}
        if not gone:
            return
        for origin in gone:
            del self._drawn[origin]
        self._order = deque(item for item in self._order if item[0] not in gone)
        self._held = sum(len(drawn.keys_S) for _, drawn in self._order)

    def _drop(self, origin: Origin, drawn: _Drawn) -> None:
        self._held -= len(drawn.keys_S)
        key = int(drawn.keys_S[drawn.anchor])
        same = self._drawn[origin][key]
        same.remove(drawn)
        if not same:
            del self._drawn[origin][key]
        if not self._drawn[origin]:
            del self._drawn[origin]


def _keys(tokens: NDArray[np.integer], logprobs: Floats) -> Ints:
    """One number for a token and the bits of its logprob."""
    bits = np.ascontiguousarray(logprobs, dtype=np.float32).view(np.uint32)
    return tokens.astype(np.int64) << 32 | bits


def _anchor(logprobs_S: Floats) -> int:
    """The least likely token of the second half (of all, if that half is certain). Its logprob is
    the rarest: the first tokens are shared by the samples of a prompt, certain ones by all."""
    half = len(logprobs_S) // 2
    if logprobs_S[half:].any():
        return half + int(np.argmin(logprobs_S[half:]))
    return int(np.argmin(logprobs_S))


def _found(keys_P: Ints, known: Mapping[int, list[_Drawn]]) -> Iterator[tuple[int, _Drawn]]:
    """(first pair, sequence) for every sequence that lies in the pairs, whole and unchanged."""
    anchors = np.fromiter(known, dtype=np.int64, count=len(known))
    for at in np.flatnonzero(np.isin(keys_P, anchors)).tolist():
        for drawn in known[int(keys_P[at])]:
            start = at - drawn.anchor
            stop = start + len(drawn.keys_S)
            if start >= 0 and np.array_equal(keys_P[start:stop], drawn.keys_S):
                yield start, drawn
