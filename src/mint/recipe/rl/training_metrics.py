"""How far the weights in training are from those that sampled, and how sure the sampler was.

Letters: `D` datums, `T` positions of a datum. M are the positions whose target was sampled
(mask above 0), over all datums together; s is the logprob a token was sampled with, p the one under
the weights in training.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinker import types

from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.data_processing import array_of


class SampledTokens:
    """M: where the sampled targets of some data are, looked for once for all that is read there.

    A datum is mostly prompt, so reading it whole for each number would take longer than the numbers.
    """

    def __init__(self, data_D: Sequence[types.Datum]) -> None:
        self.data_D = data_D
        masks_D = [array_of(datum, "mask") for datum in data_D]
        self._sizes_D = [mask_T.size for mask_T in masks_D]
        self._places_D = [np.flatnonzero(mask_T > 0) for mask_T in masks_D]

    @cached_property
    def logprobs_M(self) -> NDArray[np.float64]:
        """s."""
        return self.of("logprobs")

    def of(self, name: str) -> NDArray[np.float64]:
        """One of the data's tensors over M."""
        return self.pick([array_of(datum, name) for datum in self.data_D])

    def pick(self, values_D: Sequence[Any]) -> NDArray[np.float64]:
        """Values per target `[T]` of every datum, over M, in order.

        Raises:
            DataValidationError: a datum has not one value per target.
        """
        if len(values_D) != len(self.data_D):
            raise DataValidationError(
                f"there are {len(self.data_D)} datums, but values of {len(values_D)}: one array for "
                "each."
            )
        picked = [np.empty(0)]
        for d, values in enumerate(values_D):
            values_T = as_array(values)
            if values_T.shape != (self._sizes_D[d],):
                raise DataValidationError(
                    f"datum {d} has {self._sizes_D[d]} targets, but values of shape "
                    f"{list(values_T.shape)}: one for each target."
                )
            picked.append(values_T[self._places_D[d]])
        return np.concatenate(picked).astype(np.float64)

    def datums_with(self, is_true_M: NDArray[np.bool_]) -> int:
        """How many data have a sampled token of which something is true."""
        owners_M = np.repeat(np.arange(len(self.data_D)), list(map(len, self._places_D)))
        return np.unique(owners_M[is_true_M]).size


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
    return drift_metrics(SampledTokens(data_D), training_logprobs_D)


def drift_metrics(tokens: SampledTokens, training_logprobs_D: Sequence[Any]) -> dict[str, float]:
    """`compute_kl_sample_train` of data whose sampled tokens have been looked for."""
    drift_M = tokens.logprobs_M - tokens.pick(training_logprobs_D)
    if not drift_M.size:
        return {}
    return {
        "optim/kl_sample_train_v1": float(drift_M.mean()),
        "optim/kl_sample_train_v2": float(0.5 * np.square(drift_M).mean()),
        "optim/entropy": float(-tokens.logprobs_M.mean()),
    }


def as_array(values: Any) -> NDArray[Any]:
    """A tensor, TensorData, array or list as an array; needs no torch."""
    return values.to_numpy() if isinstance(values, types.TensorData) else np.asarray(values)
