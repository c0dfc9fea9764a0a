"""Datums of a pass -> packed micro-batches that compute a shared prefix once.

Datums that begin alike (an RL group: the prompt) form a group. Its prefix is packed once and every
member's rest follows; a rest attends to [prefix, its own earlier tokens]. Gradients are exact: the
prefix's keys simply have several readers.

Shapes: T packed tokens, G members of a group, S longest rest in it, H/K query/key heads, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from mint.core.model_input import Tokens

MIN_SHARED = 4
"""Shorter common beginnings are not worth a group of their own."""


@dataclass(frozen=True)
class Group:
    """Datums (by index in the pass) whose first `prefix` tokens are the same."""

    members: tuple[int, ...]
    prefix: int

    def packed_tokens(self, lengths: Sequence[int]) -> int:
        return self.prefix + sum(lengths[i] - self.prefix for i in self.members)


def group_by_prefix(inputs: Sequence[Tokens]) -> list[Group]:
    """Partition datums into groups with a common prefix, so that few tokens are packed.

    Datums are sorted by their tokens, so those that share a beginning are neighbours; a neighbour
    joins while that does not shrink what the group saves. Deterministic; any prefix length.
    """
    order = sorted(range(len(inputs)), key=lambda i: inputs[i].astype(">i4").tobytes())
    groups: list[Group] = []
    members: list[int] = []
    prefix = 0
    for i in order:
        if members:
            shared = min(prefix, _common(inputs[members[-1]], inputs[i]))
            saved_now, saved_then = (len(members) - 1) * prefix, len(members) * shared
            if shared >= MIN_SHARED and saved_then >= saved_now:
                members.append(i)
                prefix = shared
                continue
            groups.append(_group(members, prefix))
        members, prefix = [i], len(inputs[i])
    if members:
        groups.append(_group(members, prefix))
    return sorted(groups, key=lambda g: min(g.members))


def _group(members: list[int], prefix: int) -> Group:
    return Group(tuple(sorted(members)), prefix if len(members) > 1 else 0)


def _common(a: Tokens, b: Tokens) -> int:
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if different.size else n


def micro_batches(
    groups: Sequence[Group], lengths: Sequence[int], token_budget: int
) -> list[list[Group]]:
    """Cut groups into batches of at most `token_budget` packed tokens (one datum at least).

    A group over the budget is split; each part computes the prefix again.
    """
    pieces: list[Group] = []
    for group in groups:
        part: list[int] = []
        for i in group.members:
            if part and Group((*part, i), group.prefix).packed_tokens(lengths) > token_budget:
                pieces.append(_group(part, group.prefix))
                part = []
            part.append(i)
        pieces.append(_group(part, group.prefix))
    batches: list[list[Group]] = []
    used = 0
    for piece in pieces:
        size = piece.packed_tokens(lengths)
        if not batches or used + size > token_budget:
            batches.append([])
            used = 0
        batches[-1].append(piece)
        used += size
    return batches


@dataclass(frozen=True, eq=False)
class _Span:
    """Where one group lies in the packed tokens."""

    start: int
    prefix: int
    rests: tuple[int, ...]
    """Length of each member's rest; rests follow the prefix in this order."""

    @property
    def stop(self) -> int:
        return self.start + self.prefix + sum(self.rests)

    @cached_property
    def padded(self) -> tuple[Tensor, Tensor]:
        """(index `[G, S]` of each rest's tokens in the pack, pads repeat its last one;
        flat index of the real cells in pack order)."""
        longest = max(self.rests)
        index = np.zeros((len(self.rests), longest), dtype=np.int64)
        at = self.start + self.prefix
        for g, n in enumerate(self.rests):
            index[g] = at + np.minimum(np.arange(longest), max(n - 1, 0))
            at += n
        real = np.concatenate([g * longest + np.arange(n) for g, n in enumerate(self.rests)])
        return torch.from_numpy(np.minimum(index, self.stop - 1)), torch.from_numpy(real)

    @cached_property
    def mask(self) -> Tensor:
        """bool `[S, prefix + S]`: the whole prefix, and own tokens up to oneself. Pads come last,
        so no real token sees one."""
        s = max(self.rests)
        own = torch.ones(s, s, dtype=torch.bool).tril()
        return torch.cat([torch.ones(s, self.prefix, dtype=torch.bool), own], dim=1)


@dataclass(frozen=True, eq=False)
class TreePlan:
    """AttentionPlan of a packed training batch."""

    spans: tuple[_Span, ...]

    def attend(
        self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float
    ) -> Tensor:
        pieces: list[Tensor] = []
        for span in self.spans:
            start, split = span.start, span.start + span.prefix
            if span.prefix:
                own = slice(start, split)
                out = F.scaled_dot_product_attention(
                    q_HTD[None, :, own], k_KTD[None, :, own], v_KTD[None, :, own],
                    is_causal=True, scale=scale, enable_gqa=True,
                )  # fmt: skip
                pieces.append(out[0].transpose(0, 1))
            if sum(span.rests):
                pieces.append(self._rests(span, q_HTD, k_KTD, v_KTD, scale))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    @staticmethod
    def _rests(span: _Span, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float) -> Tensor:
        index_GS, real = span.padded
        index_GS, real = index_GS.to(q_HTD.device), real.to(q_HTD.device)
        g, s = index_GS.shape
        prefix = slice(span.start, span.start + span.prefix)

        def rest(x: Tensor) -> Tensor:  # [heads, T, D] -> [G, heads, S, D]
            return x[:, index_GS.reshape(-1)].unflatten(1, (g, s)).transpose(0, 1)

        def with_prefix(x: Tensor) -> Tensor:
            shared = x[None, :, prefix].expand(g, -1, -1, -1)
            return torch.cat([shared, rest(x)], dim=2)

        out_GHSD = F.scaled_dot_product_attention(
            rest(q_HTD), with_prefix(k_KTD), with_prefix(v_KTD),
            attn_mask=span.mask.to(q_HTD.device), scale=scale, enable_gqa=True,
        )  # fmt: skip
        return out_GHSD.transpose(1, 2).flatten(0, 1)[real]


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """One micro-batch.

    Attributes:
        tokens_T, positions_T: int64, packed.
        plan: who attends to whom.
        rows: per datum (index in the pass) the packed row of each of its positions.
    """

    tokens_T: NDArray[np.int64]
    positions_T: NDArray[np.int64]
    plan: TreePlan
    rows: dict[int, NDArray[np.int64]]


def pack(groups: Sequence[Group], inputs: Sequence[Tokens]) -> PackedBatch:
    """Lay the groups of one micro-batch out, one after the other."""
    tokens: list[Tokens] = []
    positions: list[NDArray[np.int64]] = []
    spans: list[_Span] = []
    rows: dict[int, NDArray[np.int64]] = {}
    at = 0
    for group in groups:
        p, start = group.prefix, at
        if p:
            tokens.append(inputs[group.members[0]][:p])
            positions.append(np.arange(p))
            at += p
        rests: list[int] = []
        for i in group.members:
            rest = inputs[i][p:]
            tokens.append(rest)
            positions.append(np.arange(p, p + len(rest)))
            rows[i] = np.concatenate([np.arange(start, start + p), np.arange(at, at + len(rest))])
            rests.append(len(rest))
            at += len(rest)
        spans.append(_Span(start, p, tuple(rests)))
    return PackedBatch(
        np.concatenate(tokens).astype(np.int64), np.concatenate(positions).astype(np.int64),
        TreePlan(tuple(spans)), rows,
    )  # fmt: skip
