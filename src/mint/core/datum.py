"""Datum: one training example, as the API has it."""

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
