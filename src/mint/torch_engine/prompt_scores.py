"""What a Sample wants to know about its prompt, gathered while it is prefilled.

Shapes: T tokens of a piece, E model width, N rows at a time, V vocabulary, k best or drawn tokens,
C cells of a table of targets.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mint.core.model_input import Tokens
from mint.core.operations import Sample
from mint.core.sampling import UNSCORED, AltTokens, Cells, Logprobs, TopK
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.lora import AdapterWeights
from mint.torch_engine.sampler import draw_many
from mint.torch_engine.uniforms import stream, uniforms

LOGITS_AT_ONCE = 1 << 22
"""Logits held at a time (16 MB in float32): larger temporaries cost more than their arithmetic."""

_ALTERNATIVES = 1 << 32
"""Number of the random stream for alternatives to the prompt: no sample of a request has it."""


class PromptScores:
    """What one Sample wants to know about its prompt."""

    def __init__(self, sample: Sample, prompt: Tokens, seed: int) -> None:
        """The first token has nothing before it that could predict it: its row stays unscored.

        Args:
            seed: of the request; the alternatives drawn follow from it.
        """
        self._temperature = sample.params.temperature or 1.0
        self._is_greedy = sample.params.temperature == 0
        self._prompt = prompt
        self._wants_logprobs = sample.prompt_logprobs
        self._k = sample.topk_prompt_logprobs
        self._from = len(prompt) - (sample.prompt_logprobs_last_n or len(prompt) - 1)
        self._logprobs = np.full(len(prompt), np.nan, dtype=np.float32)
        self._ids = np.zeros((len(prompt), self._k), dtype=np.int32)
        self._best = np.full((len(prompt), self._k), UNSCORED, dtype=np.float32)
        self._targets = sample.prompt_targets
        self._target_logprobs = np.zeros(
            len(self._targets.values) if self._targets else 0, dtype=np.float32
        )
        self._stream = stream(seed, _ALTERNATIVES)
        drawn = (len(prompt) - 1, sample.prompt_alt_tokens_k)
        self._alt_ids = np.zeros(drawn, dtype=np.int32)
        self._alt_logprobs = np.zeros(drawn, dtype=np.float32)

    @staticmethod
    def wanted(sample: Sample) -> bool:
        return (
            sample.prompt_logprobs
            or sample.topk_prompt_logprobs > 0
            or sample.prompt_targets is not None
            or sample.prompt_alt_tokens_k > 0
        )

    @property
    def logprobs(self) -> Logprobs | None:
        return self._logprobs if self._wants_logprobs else None

    @property
    def topk(self) -> TopK | None:
        return TopK(self._ids, self._best) if self._k else None

    @property
    def targets(self) -> Cells | None:
        return self._targets and replace(self._targets, values=self._target_logprobs)

    @property
    def alternatives(self) -> AltTokens | None:
        if not self._alt_ids.shape[1]:
            return None
        return AltTokens(self._alt_ids, self._alt_logprobs)

    @property
    def first_hidden(self) -> int:
        """The first prompt position whose hidden state is needed: the one before the first token
        that anything is wanted of."""
        return self._first() - 1

    def add(
        self, decoder: Decoder, weights: AdapterWeights | None, hidden_TE: Tensor, start: int
    ) -> None:
        """Score the tokens after prompt positions `start`, ..., whose last hidden states these
        are; the vocabulary of a few rows at a time."""
        rows = min(len(hidden_TE), len(self._prompt) - 1 - start)
        step = max(1, LOGITS_AT_ONCE // decoder.vocab_size)
        for at in range(max(0, self.first_hidden - start), rows, step):
            stop = min(at + step, rows)
            logits_NV = decoder.logits(hidden_TE[at:stop], [(weights, stop - at)])
            self._score(logits_NV, start + at + 1)

    def _first(self) -> int:
        """The first prompt token that anything is wanted of."""
        return 1 if self._targets or self._alt_ids.shape[1] else self._from

    def _score(self, logits_NV: Tensor, first: int) -> None:
        """`logits_NV` are those for prompt tokens `first`, ..."""
        if self._temperature != 1:
            logits_NV /= self._temperature
        total_N1 = logits_NV.logsumexp(-1, keepdim=True)
        if self._targets:
            self._score_targets(self._targets, logits_NV, total_N1, first)
        if self._alt_ids.shape[1]:
            self._draw_alternatives(logits_NV, total_N1, first)
        unwanted = max(0, self._from - first)
        logits_NV, total_N1 = logits_NV[unwanted:], total_N1[unwanted:]
        tokens = slice(first + unwanted, first + unwanted + len(logits_NV))
        if self._wants_logprobs:
            asked_N1 = torch.from_numpy(self._prompt[tokens].astype(np.int64))[:, None]
            found_N1 = logits_NV.gather(1, asked_N1.to(logits_NV.device)) - total_N1
            self._logprobs[tokens] = found_N1[:, 0].cpu().numpy()
        if self._k:
            k = min(self._k, logits_NV.shape[1])
            best = logits_NV.topk(k)
            self._ids[tokens, :k] = best.indices.cpu().numpy()
            self._best[tokens, :k] = (best.values - total_N1).cpu().numpy()

    def _score_targets(
        self, targets: Cells, logits_NV: Tensor, total_N1: Tensor, first: int
    ) -> None:
        starts = targets.starts()[first - 1 : first + len(logits_NV)]
        ids_C = targets.values[starts[0] : starts[-1]]
        row_C = np.repeat(np.arange(len(logits_NV)), np.diff(starts))
        asked = ids_C >= 0
        at, ids = _on(logits_NV, row_C[asked]), _on(logits_NV, ids_C[asked])
        found = logits_NV[at, ids] - total_N1[at, 0]
        self._target_logprobs[starts[0] : starts[-1]][asked] = found.cpu().numpy()

    def _draw_alternatives(self, logits_NV: Tensor, total_N1: Tensor, first: int) -> None:
        rows = slice(first - 1, first - 1 + len(logits_NV))
        k = self._alt_ids.shape[1]
        if self._is_greedy:
            best = logits_NV.max(-1)
            self._alt_ids[rows] = best.indices.cpu().numpy()[:, None]
            self._alt_logprobs[rows] = (best.values[:, None] - total_N1).cpu().numpy()
            return
        if logits_NV.device.type == "mps":
            logits_NV = logits_NV.cpu()  # MPS has no float64, which drawing needs
        numbers = np.arange(rows.start * k, rows.stop * k, dtype=np.uint64)
        uniform = uniforms(np.full(len(numbers), self._stream), numbers).reshape(-1, k)
        tokens_Nk, logprobs_Nk = draw_many(
            logits_NV, torch.from_numpy(uniform).to(logits_NV.device)
        )
        self._alt_ids[rows] = tokens_Nk.cpu().numpy()
        self._alt_logprobs[rows] = logprobs_Nk.cpu().numpy()


def _on(like: Tensor, indices: NDArray[np.integer]) -> Tensor:
    return torch.from_numpy(indices.astype(np.int64)).to(like.device)
