"""The linears of a base model: a frozen product plus the adapters of the rows at hand.

Shapes: T packed tokens, I/O features in and out, R rank.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

from mint.torch_engine.adapter_rows import AdapterContext, Pieces, add_product_
from mint.torch_engine.frozen import FrozenMatrix
from mint.torch_engine.lora import Target


class _Adapted(torch.autograd.Function):
    """y = x W^T + b + scale (x A^T) B^T, with the adapters' gradients added to their own memory.

    Autograd would keep more (the input once for each product) and make a temporary of every
    gradient. Saved here are x, which neighbours share, and the rank-R activation.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, x_TI: Tensor, anchor: Tensor | None, matrix: FrozenMatrix, pieces: Pieces
    ) -> Tensor:
        y_TO = matrix.product(x_TI)
        low: list[Tensor] = []
        for run, a_RI, b_OR, scale in pieces:
            low.append(F.linear(run.of(x_TI).to(a_RI.dtype), a_RI))
            add_product_(run.of(y_TO), low[-1], b_OR.t(), scale)
        ctx.save_for_backward(*([x_TI, *low] if pieces else []))
        ctx.matrix, ctx.pieces = matrix, pieces  # pyright: ignore[reportAttributeAccessIssue]
        return y_TO

    @staticmethod
    def backward(ctx: Any, g_TO: Tensor) -> tuple[Tensor | None, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        goes_on = ctx.needs_input_grad[0]
        dx_TI = ctx.matrix.back(g_TO) if goes_on else None
        saved = ctx.saved_tensors  # read once: a recomputed layer gives them only once
        for (run, a_RI, b_OR, scale), u_TR in zip(ctx.pieces, saved[1:], strict=True):
            x, g = run.of(saved[0]).to(a_RI.dtype), run.of(g_TO).to(a_RI.dtype)
            du_TR = g @ b_OR
            if a_RI.grad is not None:  # an adapter in training; others are only read
                a_RI.grad.addmm_(du_TR.t(), x, alpha=scale)
                db_RO = u_TR.t() @ g  # half the time of writing it the other way round
                b_OR.grad.add_(db_RO.t(), alpha=scale)
            if dx_TI is not None:
                add_product_(run.of(dx_TI), du_TR, a_RI, scale)
        return dx_TI, None, None, None


class LoraLinear(nn.Module):
    """A frozen linear plus the adapters of the rows at hand. Input is flattened to 2-D first:
    a frozen weight with a non-contiguous 3-D input makes the kernels copy the weight per row."""

    def __init__(
        self, base: nn.Linear, name: str, context: AdapterContext, *, keep_plain: bool
    ) -> None:
        super().__init__()
        self.matrix = FrozenMatrix(base.weight, base.bias, keep_plain=keep_plain)
        self.name = name
        self._context = context

    @property
    def target(self) -> Target:
        return Target(self.name, self.matrix.in_features, self.matrix.out_features)

    def forward(self, x: Tensor) -> Tensor:
        x_TI = x.reshape(-1, x.shape[-1])
        if torch.is_grad_enabled():
            pieces = self._context.pieces(self.name)
            y_TO = _Adapted.apply(
                x_TI, self._context.anchor if pieces else None, self.matrix, pieces
            )
            assert isinstance(y_TO, Tensor)
        else:
            y_TO = self.matrix.product(x_TI)
            self._context.add_(self.name, x_TI, y_TO)
        return y_TO.view(*x.shape[:-1], -1)


def wrap_linears(module: nn.Module, context: AdapterContext) -> tuple[Target, ...]:
    """Replace every linear of a decoder by a LoraLinear, in place; returns them as targets. The
    plain weight stays for the head only: its embedding may be the same tensor."""
    found = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.Linear)]
    targets = []
    for name, linear in found:
        parent_name, _, leaf = name.rpartition(".")
        wrapped = LoraLinear(linear, name, context, keep_plain=not parent_name)
        setattr(module.get_submodule(parent_name), leaf, wrapped)
        targets.append(wrapped.target)
    return tuple(targets)
