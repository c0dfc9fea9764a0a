"""Logits in, one token and its logprob per row out.

Shapes: N rows, V vocabulary, M candidates (some or all of the vocabulary), k best tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mint.core.sampling import SamplingParams

_BLOCK = 256
"""Tokens per block of the two-level search: about the square root of common vocabularies."""
_CANDIDATES = (64, 1024)
"""How many best tokens are looked at for top-k and top-p, before all of them are sorted."""
_COLDEST = 1e-30
"""Lowest temperature that float32 can divide by; it is greedy in effect long before."""


@dataclass(frozen=True, eq=False)
class Draws:
    """How each of N rows is drawn, one value per row; the tensors live on the logits' device."""

    temperature_N: Tensor
    """float32; 1 where the row is greedy, since its logprob is the one at temperature 1."""
    greedy_N: NDArray[np.bool_]
    top_k_N: NDArray[np.int64]
    """0: all."""
    top_p_N: NDArray[np.float64]
    uniform_N: Tensor
    """float64 in [0, 1): the only randomness."""

    @classmethod
    def of(
        cls, params: list[SamplingParams], uniforms: NDArray[np.float64], device: torch.device
    ) -> "Draws":
        temperature = [p.temperature or 1.0 for p in params]
        return cls(
            torch.tensor(temperature, dtype=torch.float32, device=device).clamp_(min=_COLDEST),
            np.array([p.temperature == 0 for p in params]),
            np.array([max(p.top_k, 0) for p in params]),
            np.array([p.top_p for p in params]),
            torch.from_numpy(uniforms).to(device),
        )


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was drawn for N rows.

    Attributes:
        tokens_N: int64.
        logprobs_N: float32, nats, under the whole temperature-scaled distribution.
        finite_N: False where the logits were not; token and logprob mean nothing there.
        topk: (ids `[N, k]`, logprobs `[N, k]`), best first, or None if k was 0.
    """

    tokens_N: Tensor
    logprobs_N: Tensor
    finite_N: Tensor
    topk: tuple[Tensor, Tensor] | None


def draw(logits_NV: Tensor, draws: Draws, topk: int = 0) -> Drawn:
    """Draw one token per row by inversion of the cumulative distribution.

    One uniform number per row decides. top_k cuts first, and top_p takes its share of what top_k
    left (the order transformers and vLLM have). Overwrites `logits_NV` (float32).
    """
    z_NV = logits_NV
    highest_N1 = z_NV.amax(-1, keepdim=True)
    z_NV.sub_(highest_N1).div_(draws.temperature_N[:, None])
    best = z_NV.topk(min(topk, z_NV.shape[1])) if topk else None
    tokens_N = torch.zeros(z_NV.shape[0], dtype=torch.int64, device=z_NV.device)
    cut = ~draws.greedy_N & ((draws.top_k_N > 0) | (draws.top_p_N < 1))
    whole = ~draws.greedy_N & ~cut

    greedy = _rows(draws.greedy_N, z_NV)
    if greedy is not None:
        tokens_N[greedy] = z_NV[greedy].argmax(-1)
    weights_NV = z_NV.exp()
    block_NM = _block_sums(weights_NV)
    total_N = block_NM.sum(-1)
    drawn_whole = _rows(whole, z_NV)
    if drawn_whole is not None:
        tokens_N[drawn_whole] = _pick_whole(
            weights_NV, block_NM, drawn_whole, draws.uniform_N[drawn_whole]
        )
    if cut.any():
        _pick_cut(weights_NV, total_N, np.flatnonzero(cut), draws, tokens_N)
    log_total_N = total_N.log()
    logprobs_N = z_NV.gather(1, tokens_N[:, None])[:, 0] - log_total_N
    return Drawn(
        tokens_N,
        logprobs_N.float(),
        torch.isfinite(total_N) & torch.isfinite(highest_N1[:, 0]),
        (best.indices, (best.values - log_total_N[:, None]).float()) if best else None,
    )


def draw_many(z_NV: Tensor, uniform_Nk: Tensor) -> tuple[Tensor, Tensor]:
    """Draw k tokens per row from its whole distribution, independently of each other.

    Args:
        z_NV: logits over temperature, float32; left as they are.
        uniform_Nk: float64 in [0, 1), on the logits' device.

    Returns:
        Token ids, int64 `[N, k]`, and their logprobs, float32 `[N, k]`.
    """
    rows, k = uniform_Nk.shape
    weights_NV = (z_NV - z_NV.amax(-1, keepdim=True)).exp()
    row_R = torch.arange(rows, device=z_NV.device).repeat_interleave(k)
    tokens_R = _pick_whole(weights_NV, _block_sums(weights_NV), row_R, uniform_Nk.reshape(-1))
    tokens_Nk = tokens_R.reshape(rows, k)
    return tokens_Nk, z_NV.gather(1, tokens_Nk) - z_NV.logsumexp(-1, keepdim=True)


def _rows(chosen: NDArray[np.bool_], like: Tensor) -> Tensor | None:
    return torch.from_numpy(np.flatnonzero(chosen)).to(like.device) if chosen.any() else None


def _block_sums(weights_NV: Tensor) -> Tensor:
    """Sums over blocks of the vocabulary, float64 `[N, blocks]`; the last block may be short."""
    rows, vocab = weights_NV.shape
    even = vocab // _BLOCK * _BLOCK
    sums = weights_NV[:, :even].view(rows, -1, _BLOCK).sum(-1)
    if even < vocab:
        sums = torch.cat([sums, weights_NV[:, even:].sum(-1, keepdim=True)], dim=-1)
    return sums.double()


def _pick_whole(weights_NV: Tensor, block_NM: Tensor, rows_R: Tensor, uniform_R: Tensor) -> Tensor:
    """Inverse CDF in two levels: the block first, then the token in it.

    A cumulative sum over the whole vocabulary would cost more than all else in this file.
    """
    cumulative_RM = block_NM[rows_R].cumsum(-1)
    target_R = uniform_R * cumulative_RM[:, -1]
    block_R = _first_above(cumulative_RM, target_R)
    before_R = cumulative_RM.gather(1, block_R[:, None])[:, 0] - block_NM[rows_R, block_R]
    vocab = weights_NV.shape[1]
    columns_RM = block_R[:, None] * _BLOCK + torch.arange(_BLOCK, device=weights_NV.device)
    inside_RM = weights_NV[rows_R[:, None], columns_RM.clamp(max=vocab - 1)].double()
    inside_RM = inside_RM * (columns_RM < vocab)
    return block_R * _BLOCK + _first_above(inside_RM.cumsum(-1), target_R - before_R)


def _first_above(cumulative_RM: Tensor, target_R: Tensor) -> Tensor:
    """The first index whose cumulative weight exceeds the target: never one of weight 0.

    Sums taken in two ways may differ in the last bit and put the target at or above the end; the
    last index with weight is meant then.
    """
    found_R = (cumulative_RM <= target_R[:, None]).sum(-1)
    last_R = (cumulative_RM < cumulative_RM[:, -1:]).sum(-1)
    return torch.minimum(found_R, last_R)


def _pick_cut(
    weights_NV: Tensor, total_N: Tensor, rows: NDArray[np.int64], draws: Draws, tokens_N: Tensor
) -> None:
    """Draw the rows that have a top-k or top-p, writing into `tokens_N`.

    Tries a few best tokens first and more only for rows whose set is larger: sorting a whole
    vocabulary takes fifty times as long as finding its 64 best.
    """
    device, vocab = weights_NV.device, weights_NV.shape[1]
    top_k = np.where(draws.top_k_N[rows] > 0, np.minimum(draws.top_k_N[rows], vocab), 0)
    for size in (*(c for c in _CANDIDATES if c < vocab), vocab):
        may = np.flatnonzero(top_k <= size)
        if not may.size:
            continue
        at = torch.from_numpy(rows[may]).to(device)
        weights, ids = weights_NV[at].topk(size)
        weights = weights.double()
        k = torch.from_numpy(top_k[may]).to(device)[:, None]
        weights *= (k == 0) | (torch.arange(size, device=device) < k)
        p = torch.from_numpy(draws.top_p_N[rows[may]]).to(device)[:, None]
        mass = torch.where(k > 0, weights.sum(-1, keepdim=True), total_N[at][:, None])
        cumulative = weights.cumsum(-1)
        weights *= (cumulative - weights < p * mass) | (p >= 1)
        settled = (k > 0) | (cumulative[:, -1:] >= p * mass) | ~torch.isfinite(mass)
        done = settled[:, 0].cpu().numpy() | (size == vocab)
        sure = torch.from_numpy(np.flatnonzero(done)).to(device)
        kept = weights[sure].cumsum(-1)
        target = draws.uniform_N[at[sure]] * kept[:, -1]
        tokens_N[at[sure]] = ids[sure].gather(1, _first_above(kept, target)[:, None])[:, 0]
        left = np.ones(len(rows), dtype=bool)
        left[may[done]] = False
        rows, top_k = rows[left], top_k[left]
        if not rows.size:
            return
