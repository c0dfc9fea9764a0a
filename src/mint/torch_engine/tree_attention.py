"""Attention over a packed tree: each token sees the tokens before it on its own path, and itself.

In a packed tree a node is followed by all that lies below it, so the rule is one comparison: key
row k is seen by query rows k <= q < end(k), where end(k) is where the last node below k's own
stops. Every device's plan is built from that.

Shapes: T packed tokens, N nodes, H query heads, K key heads, D head width, M queries of a call.
"""

import importlib
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mint.torch_engine.attention import AttentionPlan

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Ints = NDArray[np.int64]

MAX_BLOCK = 64
"""Rows of several nodes that may be computed in one masked call. The kernel takes 32 queries at a
time, so that a call for a few tokens costs as much as one for 32."""
MAX_WASTE = 512
"""(query, key) products that a node may waste by sharing a call: they take as long as a call of
its own (measured at 9 heads of width 64, 1 thread; flat between 300 and 900)."""


@dataclass(frozen=True, eq=False)
class TreeLayout:
    """Where the nodes of a tree lie in the packed tokens, each before all that is below it.

    Attributes:
        start_N, stop_N: a node's own rows.
        end_N: where the last node below it stops; its own stop when it is a leaf.
    """

    start_N: Ints
    stop_N: Ints
    end_N: Ints

    @property
    def tokens(self) -> int:
        return int(self.stop_N[-1])

    @cached_property
    def end_T(self) -> Ints:
        """For each row the end of its node: the first row after it that cannot see it."""
        return np.repeat(self.end_N, self.stop_N - self.start_N)

    def visible(self, start: int, stop: int) -> NDArray[np.bool_]:
        """`[M, M]`: which of rows `start` to `stop` (as queries) see which of them (as keys)."""
        row = np.arange(start, stop)
        return (row[None, :] <= row[:, None]) & (row[:, None] < self.end_T[None, start:stop])


@dataclass(frozen=True, eq=False)
class TreePlan:
    """AttentionPlan of a packed tree on whatever device it is computed."""

    layout: TreeLayout
    _plans: dict[torch.device, AttentionPlan] = field(default_factory=dict)
    """Those made so far: every layer of a pass uses the same."""

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        plan = self._plans.get(q_HTD.device)
        if plan is None:
            plan = self._plans[q_HTD.device] = plan_for(self.layout, q_HTD.device)
        return plan.attend(layer, q_HTD, k_KTD, v_KTD, scale)


def plan_for(layout: TreeLayout, device: torch.device) -> AttentionPlan:
    """The quickest exact plan that the device has kernels for, forward and backward."""
    if device.type == "cpu":
        return SlicedTreePlan.of(layout)
    if device.type == "cuda":
        return FlexTreePlan.of(layout, device)
    return MaskedTreePlan.of(layout, device)


@dataclass(frozen=True, eq=False)
class Block:
    """Rows that attend among themselves in one call."""

    start: int
    stop: int
    bias_MM: Tensor | None
    """float32: 0 where the query (row) sees the key (column), -inf elsewhere. None: all that come
    before it, as within one node."""

    def bias(self, dtype: torch.dtype) -> Tensor | None:
        """In the type that the kernel sums in: it takes another one, and gives wrong numbers."""
        return None if self.bias_MM is None else self.bias_MM.to(dtype)


@dataclass(frozen=True)
class Reading:
    """Query rows that see all of some earlier rows."""

    query_start: int
    query_stop: int
    key_start: int
    key_stop: int


@dataclass(frozen=True, eq=False)
class SlicedTreePlan:
    """The plan for a CPU: flash attention on slices, merged by their log-sum-exps.

    A token's keys are those of its own node and those of its ancestors'. Own keys are one causal
    call for each node, and for each node with children one call without a mask lets all rows below
    it, as one long query, read its keys. A token's parts are merged by

        lse = log(exp(lse_1) + exp(lse_2)),   out = out_1 exp(lse_1 - lse) + out_2 exp(lse_2 - lse)

    (Dao et al. 2022, arXiv:2205.14135, section 3.1), and the kernel's backward is called for each
    part with the merged out and lse, which makes it the exact gradient (as in ring attention, Liu
    et al. 2023, arXiv:2310.01889). Short neighbours share a masked call: see MAX_BLOCK.

    Nothing is gathered, padded or copied, no matter how ragged the lengths are. That is why this
    form was chosen. Padded batches of siblings, by flash attention or by folded products with a
    joint softmax, cost 10 to 40 % more in copies at lengths from 16 to 48 and in padding at ragged
    ones; products with a softmax cost twice as much from 128 tokens on.
    """

    blocks: tuple[Block, ...]
    readings: tuple[Reading, ...]

    @classmethod
    def of(cls, layout: TreeLayout) -> "SlicedTreePlan":
        blocks: list[Block] = []
        readings: list[Reading] = []
        for low, high in pairwise(_block_bounds(layout)):
            start, stop = int(layout.start_N[low]), int(layout.stop_N[high - 1])
            bias = _bias(layout.visible(start, stop)) if high > low + 1 else None
            blocks.append(Block(start, stop, bias))
            for n in range(low, high):
                end = int(layout.end_N[n])
                if end > stop:
                    keys = int(layout.start_N[n]), int(layout.stop_N[n])
                    readings.append(Reading(stop, end, *keys))
        return cls(tuple(blocks), tuple(readings))

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        out_THD = _SlicedAttention.apply(q_HTD, k_KTD, v_KTD, self, scale)
        assert isinstance(out_THD, Tensor)
        return out_THD


def _block_bounds(layout: TreeLayout) -> list[int]:
    """Index of each block's first node, and the number of nodes.

    A node joins the block before it while few of the products between the two are for nothing:
    all but those of its rows with ancestors there.
    """
    bounds: list[int] = []
    start = 0
    for n, (low, high) in enumerate(zip(layout.start_N, layout.stop_N, strict=True)):
        size, before = int(high - low), int(low) - start
        seen = int((layout.end_T[start:low] >= high).sum())
        fits = before + size <= MAX_BLOCK and size * (2 * before - seen) <= MAX_WASTE
        if not (bounds and fits):
            bounds.append(n)
            start = int(low)
    return [*bounds, len(layout.start_N)]


def _bias(visible: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.where(visible, np.float32(0), np.float32(-np.inf)))


# torch's own CPU kernel, which scaled_dot_product_attention calls too but without giving the
# log-sum-exp. It takes grouped heads and any strides whose last is 1.
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def _heads_first(x_MHD: Tensor) -> Tensor:
    """`[1, H, M, D]`, a view."""
    return x_MHD.transpose(0, 1).unsqueeze(0)


class _SlicedAttention(torch.autograd.Function):
    """SlicedTreePlan's forward and backward. Keeps q, k, v, the output and `[H, T]` floats."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, plan: SlicedTreePlan, scale: float
    ) -> Tensor:
        q, k, v = (x.transpose(0, 1) for x in (q_HTD, k_KTD, v_KTD))
        out_THD = torch.empty_like(q, memory_format=torch.contiguous_format)
        lse_HT = q.new_empty(q.shape[1], q.shape[0], dtype=_lse_dtype(q.dtype))
        for block in plan.blocks:
            rows = slice(block.start, block.stop)
            out, lse = _flash(
                *(_heads_first(x[rows]) for x in (q, k, v)),
                0.0, block.bias_MM is None, attn_mask=block.bias(lse_HT.dtype), scale=scale,
            )  # fmt: skip
            out_THD[rows] = out[0].transpose(0, 1)
            lse_HT[:, rows] = lse[0]
        for reading in plan.readings:
            rows = slice(reading.query_start, reading.query_stop)
            keys = slice(reading.key_start, reading.key_stop)
            out, lse = _flash(
                *(_heads_first(x) for x in (q[rows], k[keys], v[keys])), 0.0, False, scale=scale
            )
            _merge(out_THD[rows], lse_HT[:, rows], out[0].transpose(0, 1), lse[0])
        ctx.save_for_backward(q, k, v, out_THD, lse_HT)
        ctx.plan, ctx.scale = plan, scale
        return out_THD

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, d_out_THD: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out_THD, lse_HT = ctx.saved_tensors
        dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))

        def gradients(rows: slice, keys: slice, causal: bool, bias_MM: Tensor | None) -> Any:
            found = _flash_backward(
                *(_heads_first(x) for x in (d_out_THD[rows], q[rows], k[keys], v[keys])),
                _heads_first(out_THD[rows]), lse_HT[None, :, rows],
                0.0, causal, attn_mask=bias_MM, scale=ctx.scale,
            )  # fmt: skip
            return (x[0].transpose(0, 1) for x in found)

        for block in ctx.plan.blocks:  # between them they write every row once
            rows = slice(block.start, block.stop)
            bias_MM = block.bias(lse_HT.dtype)
            dq[rows], dk[rows], dv[rows] = gradients(rows, rows, bias_MM is None, bias_MM)
        for reading in ctx.plan.readings:
            rows = slice(reading.query_start, reading.query_stop)
            keys = slice(reading.key_start, reading.key_stop)
            for whole, part in zip(
                (dq[rows], dk[keys], dv[keys]), gradients(rows, keys, False, None), strict=True
            ):
                whole.add_(part)
        return dq.transpose(0, 1), dk.transpose(0, 1), dv.transpose(0, 1), None, None


def _lse_dtype(dtype: torch.dtype) -> torch.dtype:
    """What the kernel sums in."""
    return dtype if dtype == torch.float64 else torch.float32


def _merge(out_MHD: Tensor, lse_HM: Tensor, other_MHD: Tensor, other_HM: Tensor) -> None:
    """Add other keys' part to the output and log-sum-exp of some rows, in place."""
    both_HM = torch.logaddexp(lse_HM, other_HM)
    weight_MH = (other_HM - both_HM).exp_().t().to(out_MHD.dtype)
    out_MHD.lerp_(other_MHD, weight_MH.unsqueeze(-1))
    lse_HM.copy_(both_HM)


@dataclass(frozen=True, eq=False)
class FlexTreePlan:
    """The plan for CUDA: flex attention, which skips blocks of the mask that nobody sees.

    Not measured: no such device was at hand. On a CPU it has no backward.
    """

    mask: "BlockMask"

    @classmethod
    def of(cls, layout: TreeLayout, device: torch.device) -> "FlexTreePlan":
        end_T = torch.from_numpy(layout.end_T).to(device)

        def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (key <= query) & (query < end_T[key])

        n = layout.tokens
        block_mask = _flex().create_block_mask
        return cls(block_mask(sees, B=None, H=None, Q_LEN=n, KV_LEN=n, device=str(device)))

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        attention = _compiled_flex() if q_HTD.is_cuda else _flex().flex_attention
        out = attention(
            q_HTD[None], k_KTD[None], v_KTD[None],
            block_mask=self.mask, scale=scale, enable_gqa=True,
        )  # fmt: skip
        return out[0].transpose(0, 1)


def _flex() -> Any:
    """Imported where it is used: lean_imports needs it not to be imported before transformers."""
    return importlib.import_module("torch.nn.attention.flex_attention")


@cache
def _compiled_flex() -> Any:
    """Without compilation it would build the whole `[H, T, T]` table. Every micro-batch has
    another T, so the shapes are left open."""
    return torch.compile(_flex().flex_attention, dynamic=True)


@dataclass(frozen=True, eq=False)
class MaskedTreePlan:
    """The plan for any other device: the whole `[T, T]` mask. Quadratic in the micro-batch."""

    visible_TT: Tensor

    @classmethod
    def of(cls, layout: TreeLayout, device: torch.device) -> "MaskedTreePlan":
        return cls(torch.from_numpy(layout.visible(0, layout.tokens)).to(device))

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        out = F.scaled_dot_product_attention(
            q_HTD[None], k_KTD[None], v_KTD[None],
            attn_mask=self.visible_TT, scale=scale, enable_gqa=True,
        )  # fmt: skip
        return out[0].transpose(0, 1)
