"""Log-probabilities of a prompt's own tokens, gathered while it is prefilled.

Shapes: T tokens of a piece, E model width, N rows at a time, V vocabulary, k best tokens.
"""

import numpy as np
import torch
from torch import Tensor

from mint.core.model_input import Tokens
from mint.core.operations import Sample
from mint.core.sampling import UNSCORED, Logprobs, TopK
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.lora import AdapterWeights

LOGITS_AT_ONCE = 1 << 22
"""Logits held at a time (16 MB in float32): larger temporaries cost more than their arithmetic."""


class PromptScores:
    """What one Sample wants to know about its prompt."""

    def __init__(self, sample: Sample, prompt: Tokens) -> None:
        """The first token has nothing before it that could predict it: its row stays unscored."""
        self._temperature = sample.params.temperature or 1.0
        self._prompt = prompt
        self._wants_logprobs = sample.prompt_logprobs
        self._k = sample.topk_prompt_logprobs
        self._logprobs = np.full(len(prompt), np.nan, dtype=np.float32)
        self._ids = np.zeros((len(prompt), self._k), dtype=np.int32)
        self._best = np.full((len(prompt), self._k), UNSCORED, dtype=np.float32)

    @staticmethod
    def wanted(sample: Sample) -> bool:
        return sample.prompt_logprobs or sample.topk_prompt_logprobs > 0

    @property
    def logprobs(self) -> Logprobs | None:
        return self._logprobs if self._wants_logprobs else None

    @property
    def topk(self) -> TopK | None:
        return TopK(self._ids, self._best) if self._k else None

    def add(
        self, decoder: Decoder, weights: AdapterWeights | None, hidden_TE: Tensor, start: int
    ) -> None:
        """Score the tokens after prompt positions `start`, ..., whose last hidden states these
        are; the vocabulary of a few rows at a time."""
        rows = min(len(hidden_TE), len(self._prompt) - 1 - start)
        step = max(1, LOGITS_AT_ONCE // decoder.vocab_size)
        for at in range(0, rows, step):
            stop = min(at + step, rows)
            logits_NV = decoder.logits(hidden_TE[at:stop], [(weights, stop - at)])
            self._score(logits_NV, start + at + 1)

    def _score(self, logits_NV: Tensor, first: int) -> None:
        """`logits_NV` are those for prompt tokens `first`, ..."""
        if self._temperature != 1:
            logits_NV /= self._temperature
        total_N1 = logits_NV.logsumexp(-1, keepdim=True)
        tokens = slice(first, first + len(logits_NV))
        if self._wants_logprobs:
            asked_N1 = torch.from_numpy(self._prompt[tokens].astype(np.int64))[:, None]
            found_N1 = logits_NV.gather(1, asked_N1.to(logits_NV.device)) - total_N1
            self._logprobs[tokens] = found_N1[:, 0].cpu().numpy()
        if self._k:
            k = min(self._k, logits_NV.shape[1])
            best = logits_NV.topk(k)
            self._ids[tokens, :k] = best.indices.cpu().numpy()
            self._best[tokens, :k] = (best.values - total_N1).cpu().numpy()
