"""How far the weights in training are from those that sampled, and how sure the sampler was.

Letters: `D` datums, `T` positions of a datum. M are the positions whose target was sampled
(mask above 0), over all datums together; s is the logprob a token was sampled with, p the one under
the weights in training.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinker import types

from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.data_processing import array_of


def compute_kl_sample_train(
    data_D: Sequence[types.Datum], training_logprobs_D: Sequence[Any]
) -> dict[str, float]:
    """Drift between sampler and trainer before the update, and the sampler's entropy.

        optim/kl_sample_train_v1 = mean over M of (s - p)
        optim/kl_sample_train_v2 = 1/2 mean over M of (s - p)^2
        optim/entropy            = - mean over M of s

    In nats. v1 and v2 estimate the same divergence KL(sampler || trainer): v1 without bias, v2 with
    less noise and never below 0 (Schulman 2020, "Approximating KL divergence", k1 and k2).

    Args:
        training_logprobs_D: p of every target, per datum `[T]`, as forward_backward returned it;
            tensors, arrays or lists.

    Returns:
        Empty if nothing was sampled.
    """
    sampled_M = sampled_logprobs(data_D)
    if not sampled_M.size:
        return {}
    drift = sampled_M - sampled_positions(data_D, training_logprobs_D)
    return {
        "optim/kl_sample_train_v1": float(drift.mean()),
        "optim/kl_sample_train_v2": float(0.5 * np.square(drift).mean()),
        "optim/entropy": float(-sampled_M.mean()),
    }


def sampled_logprobs(data_D: Sequence[types.Datum]) -> NDArray[np.float64]:
    """s over M."""
    return sampled_positions(data_D, [array_of(datum, "logprobs") for datum in data_D])


def sampled_positions(
    data_D: Sequence[types.Datum], values_D: Sequence[Any]
) -> NDArray[np.float64]:
    """Values per target `[T]` of every datum, at the positions of M, in order.

    Raises:
        DataValidationError: a datum has not one value per target.
    """
    if len(values_D) != len(data_D):
        raise DataValidationError(
            f"there are {len(data_D)} datums, but values of {len(values_D)}: one array for each."
        )
    picked = [np.empty(0)]
    for d, (datum, values) in enumerate(zip(data_D, values_D, strict=True)):
        values_T = as_array(values)
        mask_T = array_of(datum, "mask") > 0
        if values_T.shape != mask_T.shape:
            raise DataValidationError(
                f"datum {d} has {mask_T.size} targets, but values of shape "
                f"{list(values_T.shape)}: one for each target."
            )
        picked.append(values_T[mask_T])
    return np.concatenate(picked).astype(np.float64)


def as_array(values: Any) -> NDArray[Any]:
    """A tensor, TensorData, array or list as an array; needs no torch."""
    return values.to_numpy() if isinstance(values, types.TensorData) else np.asarray(values)
