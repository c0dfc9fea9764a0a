"""What the datums of a pass share: a tree of common beginnings, and its cut into micro-batches.

Datums are sorted by their tokens, so that those that begin alike are neighbours. How many tokens
each shares with the one before it is then the whole tree: RL groups below their prompts, prompts
below a system message, to any depth. A datum that another begins with needs no tokens of its own.

Shapes: L leaves (datums that begin no other datum), in the tree's order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mint.core.model_input import Tokens

Ints = NDArray[np.int64]

MIN_SAVED = 4
"""Tokens that a shared beginning has to save, besides its readers' share. A call of attention costs
a layer of the 135M model about as much as two tokens do (1 thread); the rest is for simplicity."""
READERS_PER_TOKEN = 20
"""Reading a shared beginning costs a token below it about a 20th of what its linears cost (135M
model, 1 thread). So eight groups do not share a single first token, and do share a system message."""
BATCH_TOKENS = 64
"""One more micro-batch may be made to save so many repeated tokens: what it costs by itself."""
WORTH_GROWING = 0.9
"""Products of 1,280 rows are 4 % slower than of 640 (1 thread, AVX512), and take twice the memory."""


@dataclass(frozen=True)
class Node:
    """Tokens `start` to `stop` of leaves `low` to `high`, which they share; computed once."""

    parent: int
    """Its index among the nodes, -1 for a root; a node starts where its parent stops."""
    start: int
    stop: int
    low: int
    high: int

    @property
    def is_leaf(self) -> bool:
        return self.high == self.low + 1


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """Datums (by index in the pass) and the beginnings that they share.

    Attributes:
        leaves: per leaf the datum that gives its tokens, then those that it begins with.
        length_L: tokens of each leaf, from the first on.
        shared_L: how many of them are the previous leaf's too, and computed once; 0 where a new
            tree begins.
    """

    leaves: tuple[tuple[int, ...], ...]
    length_L: Ints
    shared_L: Ints

    @property
    def packed_tokens(self) -> int:
        return int((self.length_L - self.shared_L).sum())

    def nodes(self) -> list[Node]:
        """Every node before its children, children in the order of their leaves."""
        found: list[Node] = []
        todo = [(-1, 0, len(self.leaves))]
        while todo:
            parent, low, high = todo.pop()
            start = found[parent].stop if parent >= 0 else 0
            inner = self.shared_L[low + 1 : high]
            stop = int(inner.min()) if len(inner) else int(self.length_L[low])
            here = parent
            if stop > start:
                here = len(found)
                found.append(Node(parent, start, stop, low, high))
            if len(inner):
                cuts = (low + 1 + np.flatnonzero(inner == stop)).tolist()
                parts = list(pairwise([low, *cuts, high]))
                todo.extend((here, *part) for part in reversed(parts))
        return found

    def part(self, low: int, high: int) -> "PrefixTree":
        """Leaves `low` to `high` alone, with all that they need."""
        shared_L = self.shared_L[low:high].copy()
        shared_L[0] = 0
        return PrefixTree(self.leaves[low:high], self.length_L[low:high], shared_L)


def prefix_tree(inputs: Sequence[Tokens], members: Sequence[int] | None = None) -> PrefixTree:
    """The tree of these datums, without beginnings too short to be worth sharing.

    Trees come in the order of their first datum. Deterministic.

    Args:
        members: which of the inputs; all of them when None.
    """
    chosen = range(len(inputs)) if members is None else members
    order = sorted(chosen, key=lambda i: inputs[i].astype(">i4").tobytes())
    common = [_common(inputs[a], inputs[b]) for a, b in pairwise(order)]
    leaves: list[tuple[int, ...]] = []
    shared: list[int] = []
    begun: list[int] = []
    for i, with_next in zip(order, [*common, -1], strict=True):
        if with_next == len(inputs[i]):
            begun.append(i)
            continue
        leaves.append((i, *begun))
        shared.append(with_next)
        begun = []
    length_L = np.array([len(inputs[leaf[0]]) for leaf in leaves], dtype=np.int64)
    whole = PrefixTree(tuple(leaves), length_L, np.array([0, *shared[:-1]], dtype=np.int64))
    return _in_order_of_datums(_without_short_beginnings(whole))


def _common(a: Tokens, b: Tokens) -> int:
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if different.size else n


def _without_short_beginnings(tree: PrefixTree) -> PrefixTree:
    """Repeat a beginning in each of its children where sharing it costs more than it saves."""
    nodes = tree.nodes()
    shared_L = tree.shared_L.copy()
    children, readers = [0] * len(nodes), [0] * len(nodes)
    for i in reversed(range(len(nodes))):
        node = nodes[i]
        own = node.stop - node.start
        needed = MIN_SAVED + readers[i] / READERS_PER_TOKEN
        copies = 1
        if not node.is_leaf and own * (children[i] - 1) < needed:
            copies = children[i]
            inner = shared_L[node.low + 1 : node.high]
            inner[inner == node.stop] = node.start
        if node.parent >= 0:
            children[node.parent] += copies
            readers[node.parent] += readers[i] + own * copies
    return PrefixTree(tree.leaves, tree.length_L, shared_L)


def _in_order_of_datums(tree: PrefixTree) -> PrefixTree:
    bounds = [*np.flatnonzero(tree.shared_L == 0).tolist(), len(tree.leaves)]
    trees = [range(low, high) for low, high in pairwise(bounds)]
    trees.sort(key=lambda leaves: min(min(tree.leaves[n]) for n in leaves))
    order = [n for leaves in trees for n in leaves]
    return PrefixTree(
        tuple(tree.leaves[n] for n in order), tree.length_L[order], tree.shared_L[order]
    )


def cut(tree: PrefixTree, token_budget: int, grown: int = 0) -> list[PrefixTree]:
    """The micro-batches of a pass: of `token_budget` tokens, or of up to `grown` where those come
    to a tenth fewer in all, because a long beginning that many share is computed fewer times."""
    parts = micro_batches(tree, token_budget)
    if grown <= token_budget:
        return parts
    larger = micro_batches(tree, grown)
    tokens, fewer = (sum(part.packed_tokens for part in some) for some in (parts, larger))
    return larger if fewer < WORTH_GROWING * tokens else parts


def micro_batches(tree: PrefixTree, token_budget: int) -> list[PrefixTree]:
    """Cut a pass into parts of at most `token_budget` packed tokens (one leaf at least).

    A part computes again what its first leaf shares with the one before. Of all cuts between
    leaves the cheapest are taken: those where the least is shared, BATCH_TOKENS for each part
    counted in. So a tree that fits is not cut to fill up a part, and a large one is cut between
    its large branches.
    """
    total_L = np.cumsum(tree.length_L - tree.shared_L)
    before_L = np.concatenate([[0], total_L[:-1]])
    cost = np.zeros(len(tree.leaves) + 1, dtype=np.int64)
    first_of = np.zeros(len(tree.leaves), dtype=np.int64)
    for last in range(len(tree.leaves)):
        window = int(np.searchsorted(before_L, total_L[last] - token_budget))
        firsts = np.arange(min(window, last), last + 1)
        size = tree.shared_L[firsts] + total_L[last] - before_L[firsts]
        fits = (size <= token_budget) | (firsts == last)
        spent = np.where(fits, cost[firsts] + size + BATCH_TOKENS, np.iinfo(np.int64).max)
        best = int(spent.argmin())
        first_of[last], cost[last + 1] = firsts[best], spent[best]
    parts: list[PrefixTree] = []
    high = len(tree.leaves)
    while high:
        low = int(first_of[high - 1])
        parts.append(tree.part(low, high))
        high = low
    return parts[::-1]
