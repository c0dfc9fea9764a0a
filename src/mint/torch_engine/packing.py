"""A micro-batch of datums as one row of tokens, in which a shared beginning lies once.

A node of the prefix tree is followed by all that lies below it. So each node, and everything below
it, is a slice of the packed tokens, and attention needs no index: see tree_attention.py. Gradients
are exact: the keys of a shared beginning simply have several readers.

Shapes: T packed tokens, N nodes of the prefix tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mint.core.model_input import Tokens
from mint.torch_engine.prefix_tree import Node, PrefixTree
from mint.torch_engine.tree_attention import TreeLayout, TreePlan

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """One micro-batch.

    Attributes:
        tokens_T, positions_T: int64, packed.
        plan: who attends to whom.
        rows: per datum (index in the pass) the packed row of each of its positions.
    """

    tokens_T: Rows
    positions_T: Rows
    plan: TreePlan
    rows: dict[int, Rows]


def pack(tree: PrefixTree, inputs: Sequence[Tokens]) -> PackedBatch:
    """Lay out a micro-batch's part of the prefix tree of `inputs`."""
    nodes = tree.nodes()
    layout = lay_out(nodes)
    tokens = [inputs[tree.leaves[node.low][0]][node.start : node.stop] for node in nodes]
    positions = [np.arange(node.start, node.stop) for node in nodes]
    return PackedBatch(
        np.concatenate(tokens).astype(np.int64),
        np.concatenate(positions).astype(np.int64),
        TreePlan(layout),
        _rows(tree, nodes, layout, inputs),
    )


def lay_out(nodes: Sequence[Node]) -> TreeLayout:
    """One node after the other; each ends where the last node below it stops."""
    stop_N = np.cumsum([node.stop - node.start for node in nodes])
    start_N = np.concatenate([[0], stop_N[:-1]])
    end_N = stop_N.copy()
    for i in reversed(range(len(nodes))):
        parent = nodes[i].parent
        if parent >= 0:
            end_N[parent] = max(end_N[parent], end_N[i])
    return TreeLayout(start_N, stop_N, end_N)


def _rows(
    tree: PrefixTree, nodes: Sequence[Node], layout: TreeLayout, inputs: Sequence[Tokens]
) -> dict[int, Rows]:
    rows: dict[int, Rows] = {}
    path_of: list[Rows] = []  # rows of all tokens up to a node's last
    for node, start, stop in zip(nodes, layout.start_N, layout.stop_N, strict=True):
        own = np.arange(start, stop)
        path = own if node.parent < 0 else np.concatenate([path_of[node.parent], own])
        path_of.append(path)
        if node.is_leaf:
            rows.update((i, path[: len(inputs[i])]) for i in tree.leaves[node.low])
    return rows
