"""How far two computations of the same logprobs may lie apart and still be rounding."""

from collections.abc import Mapping
from types import MappingProxyType

LARGEST_GAP: Mapping[str, float] = MappingProxyType(
    {"float32": 2e-3, "float16": 5e-2, "bfloat16": 0.5}
)
"""Of one token, in nats, by the dtype of base weights and activations. Float32 kernels agree to some
1e-4 in models of our size. Bfloat16 has 8 bits, which is 0.4 % of every weight: 0.29 is the largest gap
seen between trainer and sampler on a tiny model, and a longer run sees larger ones."""


def largest_gap(*dtypes: str) -> float:
    """The limit for the coarsest of these dtypes; one that is not in the table counts as bfloat16."""
    return max(LARGEST_GAP.get(dtype, LARGEST_GAP["bfloat16"]) for dtype in dtypes)
