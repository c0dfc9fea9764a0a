"""One forward and backward for the next micro-batches of several passes, each under its own adapter.

Together they fill the products, which a single short pass does not. Whatever is a pass's own, its
loss, temperature, head and gradient, is computed by itself; a pass that fails takes none along.

Shapes: T packed tokens, H/K query/key heads, D head width, E model width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mint.core.errors import CapacityError
from mint.torch_engine.attention import AttentionPlan
from mint.torch_engine.budget import Budget, is_out_of_memory
from mint.torch_engine.course import Course
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.passes import Part, PassInParts

Spend = Callable[[float], None]
"""Told what was computed since the last call, in forward tokens."""


Pass = PassInParts[Any]
Shares = Sequence[tuple[Pass, Part]]


@dataclass(frozen=True, eq=False)
class JoinedPlan:
    """AttentionPlan of parts that lie one after the other and see nothing of each other."""

    plans: tuple[AttentionPlan, ...]
    bounds: tuple[tuple[int, int], ...]

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        return torch.cat(
            [
                plan.attend(layer, q_HTD[:, a:b], k_KTD[:, a:b], v_KTD[:, a:b], scale)
                for plan, (a, b) in zip(self.plans, self.bounds, strict=True)
            ]
        )


def fair_shares(wanted: Sequence[int], budget: int) -> list[int]:
    """Divide a budget of tokens: as much as wanted to those who want little, the rest evenly."""
    shares = [0] * len(wanted)
    ascending = sorted(range(len(wanted)), key=wanted.__getitem__)
    for n, i in enumerate(ascending):
        shares[i] = min(wanted[i], budget // (len(wanted) - n))
        budget -= shares[i]
    return shares


def compose(passes: Sequence[Pass], budget: Budget) -> Shares:
    """Parts for one batch. The first pass is always in it, others as far as they fit; a pass with a
    gradient and one without are not put together, since the latter would be kept for a backward."""
    kind = [p for p in passes if p.differentiates == passes[0].differentiates]
    chosen: list[tuple[Pass, Part]] = []
    left = budget.batch
    if len(kind) == 1:
        return [(kind[0], kind[0].part(left, budget.grown))]
    for p, share in zip(kind, fair_shares([p.tokens_left for p in kind], left), strict=True):
        if chosen and left <= 0:
            break
        part = p.part(max(share, 1))
        if not chosen or part.tokens <= left:
            chosen.append((p, part))
            left -= part.tokens
    return chosen


Failed = dict[Pass, Exception]


@dataclass(frozen=True)
class _Broken:
    """A try of which nothing is left: all gradients are what they were before."""

    tried: Sequence[Pass]
    tokens: int
    """Of the first pass's part."""
    error: Exception | None
    """None if memory ran out, or several were tried. An error's traceback holds the try's tensors,
    which must be gone before the next."""


def run_batch(decoder: Decoder, passes: Sequence[Pass], budget: Budget, spend: Spend) -> Failed:
    """Compute the next micro-batch of as many of the passes as fit; returns those that failed.

    What goes wrong in the part they share, or in putting it together, is tried again with each pass
    alone, and a pass that runs out of memory alone with half the tokens.
    """
    first = _try(decoder, passes, budget, spend)
    if not isinstance(first, _Broken):
        return first
    if len(first.tried) > 1:
        failed: Failed = {}
        for p in first.tried:
            failed |= run_batch(decoder, [p], budget, spend)
        return failed
    [alone] = first.tried
    if first.error:
        return {alone: first.error}
    half = max(1, min(first.tokens, budget.batch) // 2)  # of a grown one, of what it grew from
    again = _try(decoder, [alone], Budget(min(budget.memory, half), half), spend)
    if not isinstance(again, _Broken):
        return again
    return {
        alone: again.error
        or CapacityError(
            f"memory ran out over a micro-batch of {first.tokens} tokens, and again over one of "
            f"{again.tokens}. About {again.tokens // 2} would fit: send data no longer than that, "
            "lower the engine's memory for sampling, or use a smaller model."
        )
    }


def _try(
    decoder: Decoder, passes: Sequence[Pass], budget: Budget, spend: Spend
) -> Failed | _Broken:
    shares: Shares = ()
    before: list[tuple[Tensor, Tensor]] = []
    try:
        shares = compose(passes, budget)
        before = _gradients(shares)
        return _compute(decoder, shares, budget, spend)
    except Exception as error:
        for grad, saved in before:
            grad.copy_(saved)
        tried = [p for p, _ in shares] or passes
        tokens = shares[0][1].tokens if shares else min(budget.batch, tried[0].tokens_left)
        is_told = len(tried) == 1 and not is_out_of_memory(error)
        return _Broken(tried, tokens, error if is_told else None)


def _gradients(shares: Shares) -> list[tuple[Tensor, Tensor]]:
    """(gradient, copy) of each pass whose part adds to it."""
    return [
        (p.adapter.flat_grad, p.adapter.flat_grad.clone())
        for p, part in shares
        if part.differentiated
    ]


def _compute(decoder: Decoder, shares: Shares, budget: Budget, spend: Spend) -> Failed:
    """Forward, every pass's head, backward. Raises what goes wrong in the parts that are shared."""
    parts = [part for _, part in shares]
    bounds = tuple(pairwise(accumulate((part.tokens for part in parts), initial=0)))
    total = bounds[-1][1]
    course = Course(total > budget.memory, lambda layers: spend(layers * total / decoder.layers))
    with torch.set_grad_enabled(parts[0].differentiated):
        hidden_TE = _hidden(decoder, shares, bounds, course)
    grad_TE = torch.zeros_like(hidden_TE)
    failed: Failed = {}
    scored: list[tuple[Pass, Part, Tensor]] = []
    for (p, part), (a, b) in zip(shares, bounds, strict=True):
        try:
            logp_P, grad = p.gradient(part, hidden_TE.detach()[a:b], _head_ticks(decoder, spend))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            failed[p] = error
            continue
        scored.append((p, part, logp_P))
        if grad is not None:
            grad_TE[a:b] = grad
    if hidden_TE.requires_grad and scored:  # an adapter of the head alone leaves the body without
        hidden_TE.backward(grad_TE)
    for p, part, logp_P in scored:
        try:
            p.took(part, logp_P)
        except Exception as error:  # others have taken theirs: the batch must not be tried again
            failed[p] = error
    return failed


def _hidden(
    decoder: Decoder, shares: Shares, bounds: tuple[tuple[int, int], ...], course: Course
) -> Tensor:
    batches = [part.batch for _, part in shares]

    def put(values: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(values)).to(decoder.device)

    plans = tuple(batch.plan for batch in batches)
    return decoder.hidden(
        put([batch.tokens_T for batch in batches]),
        put([batch.positions_T for batch in batches]),
        plans[0] if len(plans) == 1 else JoinedPlan(plans, bounds),
        [(p.adapter, part.tokens) for p, part in shares],
        course,
    )


def _head_ticks(decoder: Decoder, spend: Spend) -> Callable[[float], None]:
    """From rows of the head to forward tokens of the body."""
    head = decoder.head_weight_VE.numel()
    layer = 4 * decoder.width**2 + 3 * decoder.width * decoder.inner_width
    return lambda rows: spend(rows * head / (decoder.layers * layer))
