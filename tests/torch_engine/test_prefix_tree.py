"""What datums share, and where a pass is cut."""

from contextlib import contextmanager
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mint.torch_engine import prefix_tree as module
from mint.torch_engine.prefix_tree import cut, micro_batches, prefix_tree

tries = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=12).map(lambda v: np.array(v, np.int32)),
    min_size=1,
    max_size=12,
)
"""Over so few tokens that beginnings are shared at every depth."""


def tokens(*values):
    return np.array(values, dtype=np.int32)


def joined(*parts):
    return np.concatenate(parts).astype(np.int32)


def beginnings(inputs):
    return {tuple(t[: n + 1].tolist()) for t in inputs for n in range(len(t))}


def spans(tree):
    """(parent, start, stop, data below) of every node."""
    return [
        (n.parent, n.start, n.stop, sorted(i for leaf in tree.leaves[n.low : n.high] for i in leaf))
        for n in tree.nodes()
    ]


def test_system_message_question_and_first_turn_nest():
    system, first, second, turn = (np.arange(n, n + 20) for n in (100, 200, 300, 400))
    inputs = [
        joined(system, first, turn, tokens(1, 1)),
        joined(system, second, tokens(1)),
        joined(system, first, turn, tokens(2)),
        joined(system, first, tokens(3)),
        joined(system, second, tokens(2, 2)),
    ]
    assert spans(prefix_tree(inputs)) == [
        (-1, 0, 20, [0, 1, 2, 3, 4]),
        (0, 20, 40, [0, 2, 3]),
        (1, 40, 41, [3]),
        (1, 40, 60, [0, 2]),
        (3, 60, 62, [0]),
        (3, 60, 61, [2]),
        (0, 20, 40, [1, 4]),
        (6, 40, 41, [1]),
        (6, 40, 42, [4]),
    ]


def test_equal_datums_and_beginnings_of_others_need_no_tokens_of_their_own():
    long = np.arange(10, dtype=np.int32)
    tree = prefix_tree([long[:4], long, long[:7], long])
    assert tree.packed_tokens == 10
    assert spans(tree) == [(-1, 0, 10, [0, 1, 2, 3])]


def test_one_common_token_is_repeated_and_a_common_prompt_is_not():
    rng = np.random.default_rng(0)
    prompts = [joined([1], rng.integers(2, 99, 20)) for _ in range(4)]
    inputs = [joined(p, rng.integers(2, 99, 9)) for p in prompts for _ in range(6)]
    tree = prefix_tree(inputs)
    assert [node.parent for node in tree.nodes()].count(-1) == 4
    assert tree.packed_tokens == 4 * 21 + 24 * 9


def test_what_many_read_has_to_save_more():
    def roots(readers):
        branches = [joined(np.arange(6), np.full(readers, 10 + i)) for i in range(2)]
        return sum(node.parent == -1 for node in prefix_tree(branches).nodes())

    assert roots(readers=10) == 1  # 6 tokens are saved, 4 + 20 / 20 needed
    assert roots(readers=100) == 2


def test_trees_come_in_the_order_of_their_first_datum():
    inputs = [tokens(9, 9), tokens(*range(8), 1), tokens(5), tokens(*range(8), 2), tokens(7)]
    assert [leaf[0] for leaf in prefix_tree(inputs).leaves] == [0, 1, 3, 2, 4]


def test_some_of_the_inputs_keep_their_numbers():
    inputs = [tokens(1, 2), tokens(3, 4), tokens(5)]
    assert prefix_tree(inputs, [2, 1]).leaves == ((1,), (2,))


@contextmanager
def free_sharing():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIN_SAVED", 0)
        patch.setattr(module, "READERS_PER_TOKEN", np.inf)
        yield


def test_how_often_a_trunk_branches_is_not_limited_by_recursion():
    trunk = np.zeros(1500, dtype=np.int32)
    inputs = [joined(trunk[:n], tokens(1)) for n in range(1, 1501)]
    with free_sharing():
        tree = prefix_tree(inputs)
    assert tree.packed_tokens == 3000
    assert len(tree.nodes()) == 2 * 1500 - 1


@given(tries)
def test_without_a_price_for_sharing_every_beginning_is_computed_once(inputs):
    with free_sharing():
        tree = prefix_tree(inputs)
    assert tree.packed_tokens == len(beginnings(inputs))
    assert sorted(i for leaf in tree.leaves for i in leaf) == list(range(len(inputs)))


@given(tries)
def test_a_nodes_tokens_are_the_same_in_all_below_it(inputs):
    tree = prefix_tree(inputs)
    nodes = tree.nodes()
    for node in nodes:
        assert node.start == (nodes[node.parent].stop if node.parent >= 0 else 0) < node.stop
        below = [leaf[0] for leaf in tree.leaves[node.low : node.high]]
        assert len({inputs[i][: node.stop].tobytes() for i in below}) == 1
    leaves = [node for node in nodes if node.is_leaf]
    assert [node.stop for node in leaves] == [len(inputs[leaf[0]]) for leaf in tree.leaves]
    for leaf in tree.leaves:
        for i in leaf[1:]:
            assert np.array_equal(inputs[i], inputs[leaf[0]][: len(inputs[i])])


@given(tries, st.integers(1, 40))
def test_no_part_is_over_the_budget_unless_it_is_one_leaf(inputs, budget):
    tree = prefix_tree(inputs)
    parts = micro_batches(tree, budget)
    assert [leaf for part in parts for leaf in part.leaves] == list(tree.leaves)
    for part in parts:
        assert part.packed_tokens <= budget or len(part.leaves) == 1
        assert part.packed_tokens == sum(node.stop - node.start for node in part.nodes())


@settings(max_examples=40)
@given(tries, st.integers(8, 40))
def test_no_other_cut_would_repeat_less(inputs, budget):
    tree = prefix_tree(inputs)
    n = len(tree.leaves)

    def price(parts):
        return sum(part.packed_tokens + module.BATCH_TOKENS for part in parts)

    best = price(micro_batches(tree, budget))

    for count in range(n):
        for inner in combinations(range(1, n), count):
            parts = [tree.part(low, high) for low, high in pairwise([0, *inner, n])]
            if all(p.packed_tokens <= budget or len(p.leaves) == 1 for p in parts):
                assert price(parts) >= best
        if (count + 2) * module.BATCH_TOKENS > best:
            break


def test_a_group_over_the_budget_is_split_and_keeps_its_prefix():
    inputs = [tokens(*range(50), i, i) for i in range(6)]
    parts = micro_batches(prefix_tree(inputs), token_budget=56)
    assert [[leaf[0] for leaf in part.leaves] for part in parts] == [[0, 1, 2], [3, 4, 5]]
    assert [part.packed_tokens for part in parts] == [56, 56]


def test_a_group_that_fits_is_not_cut_to_fill_a_part_up():
    groups = [joined(np.full(40, g), [g, i]) for g in (1, 2, 3) for i in range(5)]
    parts = micro_batches(prefix_tree(groups), token_budget=75)
    assert [part.packed_tokens for part in parts] == [46, 46, 46]


def test_a_large_tree_is_cut_between_its_large_branches():
    system = np.full(12, 9)
    inputs = [joined(system, np.full(30, g), [i] * 5) for g in (1, 2) for i in range(4)]
    tree = prefix_tree(inputs)
    assert tree.packed_tokens == 12 + 2 * 50
    parts = micro_batches(tree, token_budget=90)
    assert [part.packed_tokens for part in parts] == [62, 62]


def test_parts_grow_only_where_that_saves_a_tenth():
    def sizes(beginning: int, own: int) -> list[int]:
        inputs = [joined(np.full(beginning, 9), [i] * own) for i in range(8)]
        return [part.packed_tokens for part in cut(prefix_tree(inputs), 60, grown=120)]

    assert sizes(beginning=30, own=10) == [30 + 8 * 10]
    assert sum(sizes(beginning=6, own=13)) == 2 * 6 + 8 * 13  # in one part it would be 6 fewer
