"""One forward and backward for the next micro-batches of several passes, each under its own adapter.

Together they fill the products, which a single short pass does not. Whatever is a pass's own, its
loss, temperature, head and gradient, is computed by itself; a pass that fails takes none along.

Shapes: T packed tokens, H/K query/key heads, D head width, E model width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from mint.core.errors import CapacityError
from mint.torch_engine.attention import AttentionPlan
from mint.torch_engine.budget import Budget, is_out_of_memory
from mint.torch_engine.course import Course
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.lora import TrainedAdapter
from mint.torch_engine.packing import PackedBatch

Spend = Callable[[float], None]
"""Told what was computed since the last call, in forward tokens."""


class Part(Protocol):
    """The next micro-batch of a pass."""

    @property
    def batch(self) -> PackedBatch: ...
    @property
    def tokens(self) -> int:
        """Packed."""
        ...

    @property
    def differentiated(self) -> bool:
        """Whether a backward follows."""
        ...


class Pass(Protocol):
    """What can share a forward: a TrainingPass, which says more, or another loss of this shape."""

    adapter: TrainedAdapter

    @property
    def done(self) -> bool: ...
    @property
    def differentiates(self) -> bool:
        """Of its next part. Not asked once it is done."""
        ...

    @property
    def tokens_left(self) -> int:
        """Of parts of that kind, before packing."""
        ...

    def part(self, token_budget: int) -> Any:
        """The next Part: at most so many packed tokens, but one datum at least."""
        ...

    def gradient(
        self, part: Any, hidden_TE: Tensor, tick: Callable[[float], None]
    ) -> tuple[Tensor, Tensor | None]:
        """(what `took` needs, d(loss)/d(hidden) `[T, E]` if there is one)."""
        ...

    def took(self, part: Any, found: Tensor) -> None:
        """A part is computed, its backward too: on to the next."""
        ...


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


def compose(passes: Sequence[Pass], token_budget: int) -> Shares:
    """Parts for one batch. The first pass is always in it, others as far as they fit; a pass with a
    gradient and one without are not put together, since the latter would be kept for a backward."""
    kind = [p for p in passes if p.differentiates == passes[0].differentiates]
    chosen: list[tuple[Pass, Part]] = []
    left = token_budget
    for p, share in zip(kind, fair_shares([p.tokens_left for p in kind], left), strict=True):
        if chosen and left <= 0:
            break
        part = p.part(max(share, 1))
        if not chosen or part.tokens <= left:
            chosen.append((p, part))
            left -= part.tokens
    return chosen


Failed = dict[Pass, Exception]


def run_batch(decoder: Decoder, passes: Sequence[Pass], budget: Budget, spend: Spend) -> Failed:
    """Compute the next micro-batch of as many of the passes as fit; returns those that failed.

    What goes wrong in the part they share, or in putting it together, is tried again with each pass
    alone, and a pass that runs out of memory alone with half the tokens.
    """
    shares: Shares = ()
    before: list[tuple[Tensor, Tensor]] = []
    try:
        shares = compose(passes, budget.batch)
        before = _gradients(shares)
        return _compute(decoder, shares, budget, spend)
    except Exception as error:
        for grad, saved in before:
            grad.copy_(saved)
        tried = [p for p, _ in shares] or passes
        if len(tried) == 1 and not is_out_of_memory(error):
            return {tried[0]: error}
    # Outside of the handler: its traceback would hold the first try's tensors.
    if len(tried) > 1:
        failed: Failed = {}
        for p in tried:
            failed |= run_batch(decoder, [p], budget, spend)
        return failed
    tokens = shares[0][1].tokens if shares else min(budget.batch, tried[0].tokens_left)
    return _halved(decoder, tried[0], tokens, budget, spend)


def _halved(decoder: Decoder, alone: Pass, tokens: int, budget: Budget, spend: Spend) -> Failed:
    """The second try of a pass whose micro-batch of so many tokens ran out of memory."""
    half = max(1, tokens // 2)
    shares: Shares = ()
    before: list[tuple[Tensor, Tensor]] = []
    try:
        shares = compose([alone], half)
        before = _gradients(shares)
        return _compute(decoder, shares, Budget(min(budget.memory, half), half), spend)
    except Exception as error:
        for grad, saved in before:
            grad.copy_(saved)
        if not is_out_of_memory(error):
            return {alone: error}
        again = shares[0][1].tokens if shares else half
        return {
            alone: CapacityError(
                f"memory ran out over a micro-batch of {tokens} tokens, and again over one of "
                f"{again}. About {again // 2} would fit: send data no longer than that, lower the "
                "engine's memory for sampling, or use a smaller model."
            )
        }


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
