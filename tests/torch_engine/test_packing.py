"""Which datums share a prefix, and how they are cut into micro-batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mint.torch_engine.packing import Group, group_by_prefix, micro_batches, pack


def tokens(*values):
    return np.array(values, dtype=np.int32)


def test_a_group_shares_its_prompt_and_single_datums_stay_alone():
    prompt = [7, 7, 8, 9, 5]
    inputs = [tokens(*prompt, 1), tokens(3, 3, 3, 3, 3), tokens(*prompt, 2, 2), tokens(*prompt)]
    assert group_by_prefix(inputs) == [Group((0, 2, 3), 5), Group((1,), 0)]


def test_a_short_common_beginning_does_not_merge_groups():
    inputs = [tokens(1, 2, *[a] * 20, i) for a in (5, 6) for i in range(4)]
    assert [g.prefix for g in group_by_prefix(inputs)] == [22, 22]


def test_equal_datums_are_computed_once():
    inputs = [tokens(*range(10))] * 3
    assert group_by_prefix(inputs) == [Group((0, 1, 2), 10)]
    assert len(pack(group_by_prefix(inputs), inputs).tokens_T) == 10


def test_a_group_over_the_budget_is_split_and_keeps_its_prefix():
    inputs = [tokens(*range(50), i, i) for i in range(6)]
    batches = micro_batches(group_by_prefix(inputs), [52] * 6, token_budget=56)
    assert batches == [[Group((i, i + 1, i + 2), 50)] for i in (0, 3)]


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12),
    st.integers(1, 40),
)
def test_every_position_of_every_datum_is_packed_where_its_tokens_are(lists, budget):
    inputs = [tokens(*values) for values in lists]
    seen = {}
    for batch in micro_batches(group_by_prefix(inputs), [len(t) for t in inputs], budget):
        packed = pack(batch, inputs)
        for i, rows in packed.rows.items():
            assert i not in seen
            seen[i] = True
            assert packed.tokens_T[rows].tolist() == inputs[i].tolist()
            assert packed.positions_T[rows].tolist() == list(range(len(inputs[i])))
    assert sorted(seen) == list(range(len(inputs)))
