"""Norms, gated MLPs and attention of the base models with fewer passes over memory and less kept for
the way back.

transformers writes them as rows of elementary operations, and autograd keeps the result of each:
for a norm three tensors of the model's width where one will do. A module is replaced only if ours
computes the same on random numbers, so a family with another formula keeps its own code.

Shapes: T tokens, E width of a norm, F width inside an MLP, D head width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

from mint.torch_engine.linears import products
from mint.torch_engine.rotary_attention import RotaryAttention

_PROBE_ROWS = 5


class RmsNorm(nn.Module):
    """y = w * x / sqrt(mean(x^2) + eps), computed in float32.

    Source: Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
    """

    def __init__(self, weight_E: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_E.detach(), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            y = _RmsNorm.apply(x, self.weight, self.eps)
            assert isinstance(y, Tensor)
            return y
        return _normed(x, self.weight, self.eps)[0]


def _normed(x: Tensor, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(y, 1 / root mean square of each row, float32)."""
    wide = x.float()
    square = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_()
    inverse = square.div_(x.shape[-1]).add_(eps).rsqrt_()
    return (wide * inverse).to(x.dtype).mul_(weight_E), inverse


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight_E: Tensor, eps: float) -> Tensor:
        y, inverse = _normed(x, weight_E, eps)
        ctx.save_for_backward(x, weight_E, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight_E, inverse = ctx.saved_tensors
        # dx = r w g - x r^3 mean(w g x), r = 1 / rms
        wide, scaled = x.float(), g.float() * weight_E.float()
        along = torch.linalg.vecdot(scaled, wide).unsqueeze(-1)
        along.mul_(inverse.pow(3)).div_(-x.shape[-1])
        return scaled.mul_(inverse).addcmul_(wide, along).to(x.dtype), None, None


class GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x)); the linears stay those of the module it replaces.

    Source: Shazeer 2020, arXiv:2002.05202, eq. 6.
    """

    READ_ONE_X = ("gate_proj", "up_proj")

    def __init__(self, gate: nn.Module, up: nn.Module, down: nn.Module) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down

    def forward(self, x: Tensor) -> Tensor:
        gate, up = products(x, self.gate_proj, self.up_proj)
        if torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad):
            return self.down_proj(_SwiGlu.apply(gate, up))
        return self.down_proj(F.silu(gate).mul_(up))


class _SwiGlu(torch.autograd.Function):
    """silu(gate) * up, of which autograd would also keep silu(gate)."""

    @staticmethod
    def forward(ctx: FunctionCtx, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gate, up = ctx.saved_tensors
        d_gate = torch.ops.aten.silu_backward(g * up, gate)
        return d_gate, F.silu(gate).mul_(g)


def fuse(module: nn.Module) -> None:
    """Replace the norms, gated MLPs and attention of a base model, in place, where ours compute the
    same."""
    for name, child in list(module.named_modules()):
        ours = _norm_like(child) or _mlp_like(child) or _attention_like(child)
        if ours is not None and name:
            parent, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(parent), leaf, ours)


def _norm_like(theirs: nn.Module) -> RmsNorm | None:
    weight, eps = getattr(theirs, "weight", None), getattr(theirs, "variance_epsilon", None)
    if not type(theirs).__name__.endswith("RMSNorm") or not isinstance(weight, Tensor):
        return None
    if not isinstance(eps, float):
        return None
    ours = RmsNorm(weight, eps)
    return ours if _agree(theirs, ours, _random(weight, weight.shape[0])) else None


def _mlp_like(theirs: nn.Module) -> GatedMlp | None:
    linears = _linears(theirs, "gate_proj", "up_proj", "down_proj")
    if linears is None:
        return None
    ours = GatedMlp(*linears)
    gate = linears[0]
    return ours if _agree(theirs, ours, _random(gate.weight, gate.in_features)) else None


def _attention_like(theirs: nn.Module) -> RotaryAttention | None:
    linears = _linears(theirs, "q_proj", "k_proj", "v_proj", "o_proj")
    head_dim = getattr(theirs, "head_dim", None)
    if linears is None or not isinstance(head_dim, int):
        return None
    for norm in (getattr(theirs, "q_norm", None), getattr(theirs, "k_norm", None)):
        if norm is not None and norm.weight.shape != (head_dim,):
            return None  # a norm of all heads together
    ours, q = RotaryAttention(theirs), linears[0]
    angles = _random(q.weight, 1, head_dim // 2).repeat(1, 1, 2)

    def run(module: nn.Module) -> Callable[[Tensor], Tensor]:
        return lambda x: module(
            hidden_states=x.unsqueeze(0), position_embeddings=(angles.cos(), angles.sin()),
            attention_mask=None, mint_plan=_EachSeesAll(),
        )[0]  # fmt: skip

    return ours if _agree(run(theirs), run(ours), _random(q.weight, q.in_features)) else None


class _EachSeesAll:
    """An AttentionPlan to compare by."""

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        q, k, v = q_HTD[None], k_KTD[None], v_KTD[None]
        return F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)[0].transpose(
            0, 1
        )


def _linears(module: nn.Module, *names: str) -> list[nn.Linear] | None:
    """The module's linears of these names, if it has them all."""
    found = [getattr(module, name, None) for name in names]
    linears = [linear for linear in found if isinstance(linear, nn.Linear)]
    return linears if len(linears) == len(names) else None


def _random(like: Tensor, *widths: int) -> Tensor:
    """Rows to compare on, of the same type and on the same device."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*widths[:-1], _PROBE_ROWS, widths[-1], generator=generator).to(like)


@torch.no_grad()
def _agree(theirs: Callable[[Tensor], Tensor], ours: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether both give the same, as closely as the type can tell."""
    expected, found = theirs(x), ours(x)
    tolerance = 8 * torch.finfo(x.dtype).eps * float(expected.abs().max())
    return bool((expected - found).abs().max() <= tolerance)
