"""The attention module of a base model, with fewer passes over its queries and keys.

transformers turns them to their positions in five elementary operations, each with a result of its
own, and autograd goes through as many on the way back. Here it is one operation and its inverse.
The linears, the norms of queries and keys, and the tables of angles stay the model's own.

Shapes: T packed tokens, H heads, D head width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from mint.torch_engine.attention import mint_attention
from mint.torch_engine.linears import products


class RotaryAttention(nn.Module):
    """o(attend(rotated(q(x)), rotated(k(x)), v(x))), in place of a transformers module that computes
    the same."""

    READ_ONE_X = ("q_proj", "k_proj", "v_proj")

    def __init__(self, theirs: Any) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = theirs.q_proj, theirs.k_proj, theirs.v_proj
        self.o_proj = theirs.o_proj
        self.q_norm = getattr(theirs, "q_norm", None) or nn.Identity()
        self.k_norm = getattr(theirs, "k_norm", None) or nn.Identity()
        self.layer_idx: int = theirs.layer_idx
        self.head_dim: int = theirs.head_dim
        self.scaling: float = theirs.scaling

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """transformers' signature; the batch axis is always 1."""
        found = products(hidden_states, self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (y.unflatten(-1, (-1, self.head_dim)) for y in found)
        cos, sin = (table.unsqueeze(-2) for table in position_embeddings)  # alike for all heads
        q, k = rotated(self.q_norm(q), cos, sin), rotated(self.k_norm(k), cos, sin)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # heads first
        out, _ = mint_attention(self, q, k, v, attention_mask, scaling=self.scaling, **kwargs)
        return self.o_proj(out.flatten(-2)), None


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair (x_i, x_{i + D/2}) of the last axis turned by its angle.

    Source: Su et al. 2021, arXiv:2104.09864, eq. 34, with the pairs half a head apart.
    """
    if torch.is_grad_enabled() and x.requires_grad:
        y = _Rotated.apply(x, cos, sin)
        assert isinstance(y, Tensor)
        return y
    return _turned(x, cos, sin)


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        cos, sin = ctx.saved_tensors
        # the transpose: what a half took from the other half now goes back to it
        return _turned(g, cos, -sin.roll(sin.shape[-1] // 2, -1)), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    y = x * cos
    (first, second), (x1, x2), (s1, s2) = (t.chunk(2, -1) for t in (y, x, sin))
    first.addcmul_(x2, s1, value=-1)
    second.addcmul_(x1, s2)
    return y
