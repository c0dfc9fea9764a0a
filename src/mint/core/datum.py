"""Datum and ReverseKLDatum: one training example each, as the API has them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mint.core.model_input import ModelInput

Tensor = NDArray[np.float32] | NDArray[np.int64]
"""A dense array as it came over the wire: float32 or int64, `[n]` or `[n, k]`."""


@dataclass(frozen=True, eq=False)
class Datum:
    """One example: what the model reads, and what its loss needs.

    Position i of every tensor belongs to input token i; `target_tokens[i]` is the token that the
    inputs up to and including i predict (targets are shifted by the caller).
    """

    model_input: ModelInput
    loss_fn_inputs: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class ReverseKLDatum:
    """One example of a reverse KL: the same continuation as the student and as a reference reads it.

    Both inputs end in the continuation less its last token, so that the last n positions of either
    predict `target_tokens` `[n]`. What comes before may differ: the reference may see a prompt that
    the student does not.

    Attributes:
        target_tokens: int64 `[n]`.
        weights: float32 `[n]`, what each position counts for; 0: not at all.
    """

    student_input: ModelInput
    reference_input: ModelInput
    target_tokens: NDArray[np.int64]
    weights: NDArray[np.float32]
