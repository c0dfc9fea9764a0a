"""Staying near a reference model, and how far an update moved the policy.

Letters: `D` datums, `T` positions of a datum. s is the logprob a token was sampled with, b the one
under the reference, mask 1 on sampled targets.

s is of the distribution that was sampled from, so at the sampling temperature. Where the server can
score a prompt at a temperature, b is asked for at the same one; otherwise the two are of different
distributions, and their difference is no log-ratio unless the temperature is 1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tinker import types

from mint.recipe import service
from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.data_processing import array_of
from mint.recipe.rl.token_usage import TokenUsage as TokenUsage
from mint.recipe.rl.training_metrics import SampledTokens, as_array
from mint.recipe.tasks import run_together

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float64]


async def incorporate_kl_penalty(
    data_D: Sequence[types.Datum],
    base_sampling_client: Any,
    kl_penalty_coef: float,
    kl_discount_factor: float,
    *,
    temperature: float = 1.0,
) -> tuple[dict[str, float], TokenUsage]:
    """Score the data under the reference and add the penalty to the advantages, in place.

    Args:
        data_D: one minibatch; the penalty is centred over it.
        kl_penalty_coef, kl_discount_factor: c and gamma of `kl_advantages`.
        temperature: to score at; other than 1 only where the server can.

    Returns:
        `kl_policy_base`, the mean distance per sampled token in nats, and the tokens scored.

    Raises:
        DataValidationError: the reference has no finite logprob for a sampled token.
    """
    reference_D, usage = await score(data_D, base_sampling_client, temperature)
    added_D, distance = kl_advantages(data_D, reference_D, kl_penalty_coef, kl_discount_factor)
    for datum, added_T in zip(data_D, added_D, strict=True):
        advantages_T = (array_of(datum, "advantages") + added_T).astype(np.float32)
        datum.loss_fn_inputs["advantages"] = types.TensorData.from_numpy(advantages_T)
    return {"kl_policy_base": distance}, usage


def kl_advantages(
    data_D: Sequence[types.Datum],
    reference_logprobs_D: Sequence[Any],
    kl_penalty_coef: float,
    kl_discount_factor: float = 0.0,
) -> tuple[list[Floats], float]:
    """What the distance to the reference adds to each advantage.

        d_t  = mask_t (s_t - b_t)
        dbar = sum d_t / sum mask_t                     over all datums of the minibatch
        k_t  = c mask_t (dbar - d_t)                    so that sum k_t = 0
        k_t := sum over j >= 0 of gamma^j k_(t+j)       within the datum, only if gamma > 0

    With gamma > 0 positions before an action are given credit as well, those of the prompt included.

    Returns:
        k per datum `[T]`, and dbar: the estimate of KL(policy || reference) per token, in nats.
        Zeros and 0 if nothing was sampled.
    """
    masks_D = [array_of(datum, "mask").astype(np.float64) for datum in data_D]
    gaps_D = [
        np.where(mask_T > 0, mask_T * (array_of(datum, "logprobs") - as_array(b)), 0.0)
        for datum, mask_T, b in zip(data_D, masks_D, reference_logprobs_D, strict=True)
    ]
    total = sum(float(mask_T.sum()) for mask_T in masks_D)
    if total == 0:
        return gaps_D, 0.0
    mean = sum(float(gap_T.sum()) for gap_T in gaps_D) / total
    added_D = [
        kl_penalty_coef * mask_T * (mean - gap_T)
        for mask_T, gap_T in zip(masks_D, gaps_D, strict=True)
    ]
    if kl_discount_factor > 0:
        added_D = [discounted_sum(added_T, kl_discount_factor) for added_T in added_D]
    return added_D, mean


async def compute_post_kl(
    data_D: Sequence[types.Datum], sampling_client: Any, temperature: float = 1.0
) -> tuple[dict[str, float], TokenUsage]:
    """How far the update moved the policy: the drift of `compute_kl_sample_train` with p from a
    sampler of the new weights.

    Returns:
        `kl_pre_post_v1` and `kl_pre_post_v2`, in nats, and the tokens scored.
    """
    tokens = SampledTokens(data_D)
    if not tokens.logprobs_M.size:
        return {}, TokenUsage()
    after_D, usage = await score(data_D, sampling_client, temperature)
    moved = tokens.logprobs_M - tokens.pick(after_D)
    metrics = {
        "kl_pre_post_v1": float(moved.mean()),
        "kl_pre_post_v2": float(0.5 * np.square(moved).mean()),
    }
    return metrics, usage


async def score(
    data_D: Sequence[types.Datum], sampling_client: Any, temperature: float = 1.0
) -> tuple[list[Floats], TokenUsage]:
    """Logprobs of every datum's targets under a sampler, all asked for at once.

    Returns:
        Per datum `[T]`; nan where the service gives none (an image). And the tokens that were read.

    Raises:
        DataValidationError: a sampled target has no finite logprob.
    """
    full_D = [full_sequence(datum) for datum in data_D]
    answers_D = await run_together(
        service.compute_logprobs(sampling_client, full, temperature) for full in full_D
    )
    scored_D = [
        _of_targets(d, datum, answer)
        for d, (datum, answer) in enumerate(zip(data_D, answers_D, strict=True))
    ]
    return scored_D, TokenUsage(prefill_uncached=sum(full.length for full in full_D))


def full_sequence(datum: types.Datum) -> types.ModelInput:
    """Input and last target: everything that a datum speaks of, in order."""
    last = int(array_of(datum, "target_tokens")[-1])
    *before, final = datum.model_input.chunks
    if isinstance(final, types.EncodedTextChunk):
        return types.ModelInput(
            chunks=[*before, types.EncodedTextChunk(tokens=[*final.tokens, last])]
        )
    return datum.model_input.append_int(last)


def discounted_sum(x: Any, gamma: float) -> Floats:
    """y_t = sum over j >= 0 of gamma^j x_(t+j), for `[T]`.

    By doubling: sums over windows of 1, 2, 4, ... positions, each of two of the size before, so
    log2(T) passes over the array.
    """
    y_T = np.array(as_array(x), dtype=np.float64)
    reach, weight = 1, float(gamma)
    while reach < len(y_T) and weight > 0:
        y_T[:-reach] += weight * y_T[reach:]
        reach, weight = 2 * reach, weight * weight
    return y_T


def discounted_future_sum_vectorized(x: Any, gamma: float) -> "torch.Tensor":
    """`discounted_sum` as a float32 tensor. Imports torch."""
    import torch

    return torch.tensor(discounted_sum(x, gamma), dtype=torch.float32)


def _of_targets(d: int, datum: types.Datum, scored: Sequence[float | None]) -> Floats:
    targets = len(array_of(datum, "target_tokens"))
    if len(scored) != targets + 1:
        raise DataValidationError(
            f"datum {d} has {targets + 1} tokens, but the sampling client gave {len(scored)} "
            "logprobs for it: one is needed per token, None for the first."
        )
    logprobs_T = np.array(scored[1:], dtype=np.float64)  # None becomes nan
    bad = np.flatnonzero(~np.isfinite(logprobs_T) & (array_of(datum, "mask") > 0))
    if bad.size:
        raise DataValidationError(
            f"datum {d}: the sampling client gives the logprob {scored[int(bad[0]) + 1]} for the "
            f"sampled token at position {int(bad[0]) + 1}. It has to be finite; does the client's "
            "model share the policy's vocabulary?"
        )
    return logprobs_T
