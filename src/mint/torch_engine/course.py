"""How a forward pass that trains runs through the layers: what it keeps, and where it may pause.

Shapes: T packed tokens, E model width.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

BACKWARD_COST = 1.4
"""Of a layer, in forwards of it: no gradients of base weights are taken (on one core of the measured
CPU a token takes 3.7 ms in a forward of 48 and 9 ms in a training pass)."""

Scope = Callable[[], AbstractContextManager[None]]
"""Puts the adapters of a pass's rows in force, for a layer that is computed again."""


def _never(_: float) -> None: ...


@dataclass(frozen=True, eq=False)
class Course:
    """Passed to a forward whose backward follows."""

    recompute: bool = False
    """Keep each layer's input only and compute the layer again in the backward: a third more
    time, and the memory of one layer in place of all."""
    tick: Callable[[float], None] = _never
    """Called after each layer, in the forward and again in the backward, with what it has cost in
    forwards of a layer. It may block."""


@dataclass(frozen=True, eq=False)
class Steering:
    """A course and the scope its layers run in; what the layers are handed."""

    course: Course
    scope: Scope


class _TickBackwards(torch.autograd.Function):
    """The identity; calls `tick` when the gradient comes by."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tick: Callable[[float], None]) -> Tensor:
        ctx.tick = tick
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ctx.tick(BACKWARD_COST)
        return grads[0], None


def steer(layer: nn.Module) -> None:
    """Make a transformers decoder layer, in place, take a Steering as `mint_steering`."""
    plain = layer.forward

    def forward(
        hidden_1TE: Tensor, *args: Any, mint_steering: Steering | None = None, **kwargs: Any
    ) -> Tensor:
        if mint_steering is None:
            return plain(hidden_1TE, *args, **kwargs)
        course = mint_steering.course
        if course.recompute and torch.is_grad_enabled():
            out_1TE = checkpoint(
                plain, hidden_1TE, *args, use_reentrant=False, preserve_rng_state=False,
                context_fn=lambda: (nullcontext(), mint_steering.scope()), **kwargs,
            )  # fmt: skip
        else:
            out_1TE = plain(hidden_1TE, *args, **kwargs)
        assert isinstance(out_1TE, Tensor)
        course.tick(1.0)
        return _TickBackwards.apply(out_1TE, course.tick)  # pyright: ignore[reportReturnType]

    layer.forward = forward
