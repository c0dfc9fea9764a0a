"""The linears of a base model: a frozen product plus the adapters of the rows at hand.

Shapes: T packed tokens, I/O features in and out, R rank, S ranks of several linears together.
"""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from mint.torch_engine import frozen
from mint.torch_engine.adapter_rows import AdapterContext, Piece, add_product_
from mint.torch_engine.frozen import FrozenMatrix
from mint.torch_engine.lora import Target


class _Adapted(torch.autograd.Function):
    """y = x W^T + b + scale (x A^T) B^T for each of the linears that read one x, with the adapters'
    gradients added to their own memory.

    Autograd would keep more (the input once for each product), make a temporary of every gradient
    and add up those of x in passes of their own. Saved here are x, which neighbours share, and the
    rank-R activations.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x_TI: Tensor,
        anchor: Tensor | None,
        matrices: Sequence[FrozenMatrix],
        pieces: Sequence[Piece],
    ) -> tuple[Tensor, ...]:
        ys = frozen.products(x_TI, matrices)
        low = [piece.add_(x_TI, ys) for piece in pieces]
        ctx.save_for_backward(*([x_TI, *low] if pieces else []))
        ctx.matrices, ctx.pieces = matrices, pieces  # pyright: ignore[reportAttributeAccessIssue]
        return ys

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> tuple[Tensor | None, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        dx_TI: Tensor | None = None
        if ctx.needs_input_grad[0]:
            for matrix, g_TO in zip(ctx.matrices, gs, strict=True):
                dx_TI = matrix.back(g_TO, dx_TI)
        saved = ctx.saved_tensors  # read once: a recomputed layer gives them only once
        for piece, low_TS in zip(ctx.pieces, saved[1:], strict=True):
            _go_back(piece, saved[0], low_TS, gs, dx_TI)
        return dx_TI, None, None, None


def _go_back(
    piece: Piece, x_TI: Tensor, low_TS: Tensor, gs: Sequence[Tensor], dx_TI: Tensor | None
) -> None:
    """Add a piece's gradients to A, B and dx, each where it is wanted."""
    run, stack = piece.run, piece.stack
    scale, dtype = stack.scale, stack.a_SI.dtype
    g_TO = [run.of(g).to(dtype) for g in gs]
    d_low = [g @ b_OR for g, b_OR in zip(g_TO, stack.bs, strict=True)]
    d_low_TS = d_low[0] if len(d_low) == 1 else torch.cat(d_low, dim=1)
    if stack.a_grad_SI is not None:  # an adapter in training; others are only read
        stack.a_grad_SI.addmm_(d_low_TS.t(), run.of(x_TI).to(dtype), alpha=scale)
        us = low_TS.split(low_TS.shape[1] // len(gs), dim=1)
        for u_TR, g, b_OR in zip(us, g_TO, stack.bs, strict=True):
            db_RO = u_TR.t() @ g  # half the time of writing it the other way round
            assert b_OR.grad is not None
            b_OR.grad.add_(db_RO.t(), alpha=scale)
    if dx_TI is not None:
        add_product_(run.of(dx_TI), d_low_TS, stack.a_SI, scale)


class LoraLinear(nn.Module):
    """A frozen linear plus the adapters of the rows at hand. Input is flattened to 2-D first:
    a frozen weight with a non-contiguous 3-D input makes the kernels copy the weight per row."""

    def __init__(self, matrix: FrozenMatrix, name: str, context: AdapterContext) -> None:
        super().__init__()
        self.matrix = matrix
        self.name = name
        self.context = context

    @property
    def target(self) -> Target:
        return Target(self.name, self.matrix.in_features, self.matrix.out_features)

    def forward(self, x: Tensor) -> Tensor:
        return _products(x, (self,))[0]


def products(x: Tensor, *linears: nn.Module) -> Sequence[Tensor]:
    """What each of these linears makes of x, computed together as far as they can be."""
    ours = [linear for linear in linears if isinstance(linear, LoraLinear)]
    return _products(x, ours) if len(ours) == len(linears) else [linear(x) for linear in linears]


def _products(x: Tensor, linears: Sequence[LoraLinear]) -> list[Tensor]:
    context = linears[0].context
    names = tuple(linear.name for linear in linears)
    matrices = [linear.matrix for linear in linears]
    x_TI = x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled():  # x is kept once, and their gradients of it summed as they come
        pieces = context.pieces(names)
        ys: tuple[Tensor, ...] = _Adapted.apply(  # pyright: ignore[reportAssignmentType]
            x_TI, context.anchor if pieces else None, matrices, pieces
        )
    else:
        ys = frozen.products(x_TI, matrices)
        context.add_(names, x_TI, ys)
    return [y_TO.view(*x.shape[:-1], y_TO.shape[1]) for y_TO in ys]


def wrap_linears(module: nn.Module, context: AdapterContext) -> tuple[Target, ...]:
    """Replace every linear of a decoder by a LoraLinear, in place; returns them as targets. The
    plain weight stays for the head only: its embedding may be the same tensor."""
    found = {n: m for n, m in module.named_modules() if isinstance(m, nn.Linear)}
    matrices: dict[str, FrozenMatrix] = {}
    for names in _readers_of_one_x(module, found):
        together = frozen.matrices_of([found[n] for n in names], keep_plain="." not in names[0])
        matrices |= zip(names, together, strict=True)
    targets = []
    for name in found:
        parent_name, _, leaf = name.rpartition(".")
        wrapped = LoraLinear(matrices[name], name, context)
        setattr(module.get_submodule(parent_name), leaf, wrapped)
        targets.append(wrapped.target)
    return tuple(targets)


def _readers_of_one_x(module: nn.Module, found: Collection[str]) -> list[list[str]]:
    """Names of linears, together those that a module of ours gives to `products` at once."""
    groups = [
        [f"{parent}.{leaf}" for leaf in leaves]
        for parent, child in module.named_modules()
        if (leaves := getattr(child, "READ_ONE_X", ()))
    ]
    grouped = {name for names in groups for name in names}
    return [*groups, *([name] for name in found if name not in grouped)]
