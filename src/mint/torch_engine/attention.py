"""The one attention function, and the plans that say who attends to whom.

transformers runs the layers; where a layer would attend, it calls `mint_attention`, which asks the
plan of this forward pass. Prefill, decode, training and prompt scoring differ in their plan only.

Shapes: T packed tokens, H query heads, K key heads, D head width.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface

ATTENTION = "mint"
"""Our name in transformers' AttentionInterface."""


class AttentionPlan(Protocol):
    """Who attends to whom in one forward pass over packed tokens."""

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        """Attention output `[T, H, D]`. Keys and queries are already rotated to position."""
        ...


def mint_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    mint_plan: AttentionPlan,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention signature over the pass's plan; the batch axis is always 1."""
    assert attention_mask is None, "packed tokens carry their mask in the plan"
    assert dropout == 0.0, "models are in eval mode"
    layer = module.layer_idx
    assert isinstance(layer, int)
    out_THD = mint_plan.attend(layer, query[0], key[0], value[0], scaling)
    return out_THD.unsqueeze(0), None


def register() -> None:
    """Make "mint" known to transformers. Idempotent."""
    AttentionInterface.register(ATTENTION, mint_attention)  # pyright: ignore[reportArgumentType]
