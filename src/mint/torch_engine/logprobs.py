"""Target logprobs and their gradient from hidden states; the rows x vocabulary table never exists
whole.

The head is run chunk by chunk over packed rows. Where a chunk can give a gradient, its logits turn
into d(loss)/d(logits) in place, and from there into gradients of the hidden states and of the
head's adapter; nothing of the table outlives its chunk. The other rows need the forward only.

Shapes: T packed rows, E model width, V vocabulary, P (position, target) pairs, N rows of a chunk,
R rank.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from mint.torch_engine.decoder import Decoder
from mint.torch_engine.lora import AdapterWeights, TrainedAdapter

CHUNK_VALUES = 4 * 2**20
"""Logits of one chunk: 16 MiB of float32. Half of it takes 8 % more time, twice as much 4 % less, and
a pass cannot pause inside."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """What is scored: the target `target_P` after packed row `row_P`. Both int64 `[P]`.

    Several pairs may name one row: soft targets, or datums that share a prefix.
    """

    row_P: Tensor
    target_P: Tensor

    def of(self, chosen: Tensor) -> "Pairs":
        return Pairs(self.row_P[chosen], self.target_P[chosen])


@dataclass(frozen=True, eq=False)
class Chunk:
    rows_N: Tensor
    """Packed rows, ascending."""
    pairs: Tensor
    """Indices into the pairs."""
    local: Tensor
    """For each of them its row within rows_N."""


def chunks(pairs: Pairs, vocab_size: int) -> Iterator[Chunk]:
    rows, inverse = torch.unique(pairs.row_P, return_inverse=True)
    order = torch.argsort(inverse, stable=True)
    size = max(1, CHUNK_VALUES // vocab_size)
    bounds = torch.searchsorted(
        inverse[order], torch.arange(0, len(rows) + size, size, device=rows.device)
    ).tolist()
    for n, (low, high) in enumerate(pairwise(bounds)):
        chosen = order[low:high]
        yield Chunk(rows[n * size : (n + 1) * size], chosen, inverse[chosen] - n * size)


class Head:
    """The head's matrices and one adapter's share of them, for a forward and a hand-made backward.

    Without an adapter in training there is no gradient of the head to add to.
    """

    def __init__(
        self, decoder: Decoder, adapter: AdapterWeights | None, temperature: float
    ) -> None:
        self._matrix = decoder.head
        pair = adapter.pairs.get(decoder.head_name) if adapter else None
        self._pair = tuple(w.detach() for w in pair) if pair else None
        self._grads = tuple(w.grad for w in pair) if pair else None
        self._scale = adapter.layout.scale if adapter else 0.0
        self._temperature = temperature

    def logits(self, h_NE: Tensor) -> Tensor:
        """float32 `[N, V]`, divided by the temperature."""
        out = self._matrix.product(h_NE).float()
        if self._pair:
            a_RE, b_VR = self._pair
            out.addmm_(F.linear(h_NE.float(), a_RE), b_VR.t(), alpha=self._scale)
        return out if self._temperature == 1 else out.div_(self._temperature)

    def backward(self, h_NE: Tensor, d_NV: Tensor) -> Tensor:
        """Gradient of the hidden rows from that of the logits; the adapter's is added to its own.
        Overwrites `d_NV`."""
        if self._temperature != 1:
            d_NV.div_(self._temperature)
        dh_NE = self._matrix.back(d_NV.to(self._matrix.dtype)).to(h_NE.dtype)
        if self._pair and self._grads:
            a_RE, b_VR = self._pair
            da_RE, db_VR = self._grads
            assert da_RE is not None
            assert db_VR is not None
            h = h_NE.float()
            du_NR = d_NV @ b_VR
            db_VR.addmm_(d_NV.t(), F.linear(h, a_RE), alpha=self._scale)
            da_RE.addmm_(du_NR.t(), h, alpha=self._scale)
            dh_NE = dh_NE + (self._scale * (du_NR @ a_RE)).to(h_NE.dtype)
        return dh_NE


def score_chunk(logits_NV: Tensor, chunk: Chunk, target_P: Tensor) -> tuple[Tensor, Tensor]:
    """(logprobs of the chunk's pairs, log-sum-exp of its rows)."""
    lse_N = torch.logsumexp(logits_NV, dim=-1)
    return logits_NV[chunk.local, target_P[chunk.pairs]] - lse_N[chunk.local], lse_N


_ROWS_AT_ONCE = 8
"""Rows whose logits stay in the cache between the passes over them: 1.5 MiB at 49,152 tokens."""


def exponentiate_(logits_NV: Tensor) -> tuple[Tensor, Tensor]:
    """Turn logits into exp(logit - highest) in place; returns the rows' highest logit and sum `[N]`.

    So softmax = what is left / sum, and log-sum-exp = highest + log(sum): one exponential for both.
    """
    highest_N = torch.empty(len(logits_NV), device=logits_NV.device)
    total_N = torch.empty_like(highest_N)
    blocks = (x.split(_ROWS_AT_ONCE) for x in (logits_NV, highest_N, total_N))
    for some_NV, highest, total in zip(*blocks, strict=True):
        torch.amax(some_NV, -1, out=highest)
        torch.sum(some_NV.sub_(highest[:, None]).exp_(), -1, out=total)
    return highest_N, total_N


def never(_: float) -> None: ...


@torch.no_grad()
def score(
    decoder: Decoder,
    adapter: TrainedAdapter,
    hidden_TE: Tensor,
    pairs: Pairs,
    temperature: float,
    tick: Callable[[float], None] = never,
) -> Tensor:
    """Logprobs `[P]` in nats, float32, without gradient.

    Args:
        tick: called after each chunk with the head's work in it, in rows computed forwards.
    """
    head = Head(decoder, adapter, temperature)
    logp_P = torch.empty(len(pairs.row_P), dtype=torch.float32, device=hidden_TE.device)
    for chunk in chunks(pairs, decoder.vocab_size):
        logits = head.logits(hidden_TE[chunk.rows_N])
        logp_P[chunk.pairs] = score_chunk(logits, chunk, pairs.target_P)[0]
        tick(len(chunk.rows_N))
    return logp_P


@torch.no_grad()
def score_and_differentiate(
    decoder: Decoder,
    adapter: TrainedAdapter,
    hidden_TE: Tensor,
    pairs: Pairs,
    temperature: float,
    slope: Callable[[Tensor, Tensor], Tensor],
    *,
    active_P: Tensor,
    tick: Callable[[float], None] = never,
) -> tuple[Tensor, Tensor]:
    """Logprobs `[P]` and d(loss)/d(hidden) `[T, E]`; the head's adapter gets its gradient added.

    Each row goes through the head once: with gradient if any of its pairs is active.

    Args:
        slope: (logprobs of some active pairs, their indices into `pairs`) -> d(loss)/d(logprob) of
            them. Called once for each chunk, so it must not need other chunks' logprobs.
        active_P: bool, which pairs have a slope; that of the others is 0.
        tick: as in `score`.
    """
    grad_TE = torch.zeros_like(hidden_TE)
    logp_P = torch.empty(len(pairs.row_P), dtype=torch.float32, device=hidden_TE.device)
    with_gradient_T = torch.zeros(len(hidden_TE), dtype=torch.bool, device=hidden_TE.device)
    with_gradient_T[pairs.row_P[active_P]] = True
    with_gradient_P = with_gradient_T[pairs.row_P]
    idle = (~with_gradient_P).nonzero()[:, 0]
    logp_P[idle] = score(decoder, adapter, hidden_TE, pairs.of(idle), temperature, tick)
    head = Head(decoder, adapter, temperature)
    chosen = with_gradient_P.nonzero()[:, 0]
    some = pairs.of(chosen)
    for chunk in chunks(some, decoder.vocab_size):
        h_NE = hidden_TE[chunk.rows_N]
        logits_NV = head.logits(h_NE)
        found = logits_NV[chunk.local, some.target_P[chunk.pairs]]
        highest_N, sum_N = exponentiate_(logits_NV)
        logp = found - (highest_N + sum_N.log())[chunk.local]
        tick(len(chunk.rows_N))
        which = chosen[chunk.pairs]
        logp_P[which] = logp
        on = active_P[which]
        slope_P = torch.zeros_like(logp)
        slope_P[on] = slope(logp[on], which[on])
        # d(loss)/d(logits) = sum over a row's pairs of slope * (onehot(target) - softmax)
        total_N = torch.zeros_like(sum_N).index_add_(0, chunk.local, slope_P)
        d_NV = logits_NV.mul_((-total_N / sum_N)[:, None])
        d_NV.index_put_((chunk.local, some.target_P[chunk.pairs]), slope_P, accumulate=True)
        grad_TE[chunk.rows_N] = head.backward(h_NE, d_NV)
        tick(len(chunk.rows_N))
    return logp_P, grad_TE
