"""Requests, their prompts and their sequences while they wait and run. Holds state; computes nothing.

A request (one Sample) has `num_samples` sequences; all continue one prompt, which requests with the
same tokens and weights share.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from mint.core.ids import OperationId
from mint.core.model_input import Tokens
from mint.core.operations import Sample, SampleResult
from mint.core.sampling import SampledSequence, StopReason, TopK
from mint.torch_engine.kv_store import KvText
from mint.torch_engine.lora import AdapterWeights
from mint.torch_engine.prompt_scores import PromptScores
from mint.torch_engine.stopping import StopRule
from mint.torch_engine.uniforms import stream


@dataclass(eq=False)
class Prompt:
    """A prompt under some weights, and its keys and values once it is admitted."""

    tokens: Tokens
    weights: AdapterWeights | None
    keys: list[bytes]
    """Names of its whole blocks in the prefix cache."""
    scores: PromptScores | None = None
    """To be filled in by the prefill; a request that wants scores has a prompt of its own."""
    requests: int = 0
    """How many still need it."""
    active: int = 0
    """Admitted sequences that have not ended."""
    kv: KvText | None = None
    """Its keys and values, while it is admitted."""
    last_hidden_E: Tensor | None = None
    """Of its last token: what first tokens are drawn from. None until the prefill is done."""

    @property
    def key(self) -> tuple[int, bytes]:
        return id(self.weights), self.tokens.tobytes()

    @property
    def is_filled(self) -> bool:
        """Whether all its keys and values are there."""
        return self.kv is not None and self.kv.used == len(self.tokens)

    @property
    def reusable(self) -> int:
        """How many of its first tokens need no hidden states, only keys and values."""
        last = len(self.tokens) - 1
        return min(last, self.scores.first_hidden) if self.scores else last


@dataclass(eq=False)
class Request:
    """One Sample on its way."""

    operation_id: OperationId
    sample: Sample
    prompt: Prompt
    stop_rule: StopRule
    seed: int
    scores: PromptScores | None = None
    sequences: "list[Sequence]" = field(default_factory=list)
    """Those admitted so far, in order."""
    arrival: int = -1
    """Its number in the order of arrival, once it is in the queue."""

    @property
    def unadmitted(self) -> int:
        return self.sample.num_samples - len(self.sequences)

    @property
    def suffix_tokens(self) -> int:
        """KV that one sequence may need: its last token is never fed back."""
        return self.stop_rule.max_tokens - 1

    def next_sequence(self, kv: KvText) -> "Sequence":
        number = len(self.sequences)
        sequence = Sequence(self, number, stream(self.seed, number), kv=kv)
        self.sequences.append(sequence)
        return sequence

    @property
    def is_finished(self) -> bool:
        return not self.unadmitted and all(s.stop_reason for s in self.sequences)

    def result(self) -> SampleResult:
        return SampleResult(
            sequences=tuple(s.result() for s in self.sequences),
            prompt_logprobs=self.scores.logprobs if self.scores else None,
            topk_prompt_logprobs=self.scores.topk if self.scores else None,
            target_prompt_logprobs=self.scores.targets if self.scores else None,
            prompt_alt_tokens=self.scores.alternatives if self.scores else None,
            weights_version=self.prompt.weights.version if self.prompt.weights else 0,
        )


def seed_of(sample: Sample) -> int:
    """The request's own seed, or a fresh one: two requests without a seed never draw alike."""
    seed = sample.params.seed
    return int.from_bytes(os.urandom(8), "little") if seed is None else seed


@dataclass(eq=False)
class Sequence:
    """One continuation."""

    request: Request
    number: int
    stream: np.uint64
    """State of its random numbers."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    topk_ids: list[list[int]] = field(default_factory=list)
    topk_logprobs: list[list[float]] = field(default_factory=list)
    kv: KvText | None = None
    """Its own keys and values, while it is admitted: those of all its tokens but the last."""
    keys: list[bytes] = field(default_factory=list)
    """If it was set back: names of the whole blocks of prompt and continuation up to there."""
    stop_reason: StopReason | None = None

    @property
    def prompt(self) -> Prompt:
        return self.request.prompt

    @property
    def age(self) -> tuple[int, int]:
        """Less for those who came first."""
        return self.request.arrival, self.number

    @property
    def used(self) -> int:
        """Of its own tokens, those whose keys and values are there."""
        return self.kv.used if self.kv else 0

    @property
    def position(self) -> int:
        """Of its last token, counted from the start of the prompt."""
        return len(self.prompt.tokens) + len(self.tokens) - 1

    def result(self) -> SampledSequence:
        assert self.stop_reason is not None
        topk = None
        if self.request.sample.topk_sample_logprobs:
            topk = TopK(
                np.array(self.topk_ids, dtype=np.int32),
                np.array(self.topk_logprobs, dtype=np.float32),
            )
        return SampledSequence(
            np.array(self.tokens, dtype=np.int32),
            np.array(self.logprobs, dtype=np.float32),
            self.stop_reason,
            topk,
        )


def side_by_side(sequences: Iterable[Sequence]) -> list[Sequence]:
    """Rows of one adapter together, and within it those of one prompt; otherwise in their order."""
    adapters: dict[int, dict[Prompt, list[Sequence]]] = {}
    for s in sequences:
        adapters.setdefault(id(s.prompt.weights), {}).setdefault(s.prompt, []).append(s)
    return [s for prompts in adapters.values() for rows in prompts.values() for s in rows]
