"""Helpers over lists and dicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mint.recipe.utils.misc_utils import all_same, dict_mean, safezip, split_list


def test_all_same_is_true_of_equals_and_of_nothing():
    assert all_same([])
    assert all_same([1, 1.0])
    assert not all_same([1, 1, 2])


def test_safezip_takes_equal_lengths_only():
    assert list(safezip([1, 2], "ab")) == [(1, "a"), (2, "b")]
    with pytest.raises(ValueError, match=r"\[2, 1\]"):
        safezip([1, 2], [3])


@given(st.integers(1, 50).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_parts_are_contiguous_and_differ_in_size_by_at_most_one(sizes: tuple[int, int]):
    length, n = sizes
    parts = split_list(list(range(length)), n)

    assert [value for part in parts for value in part] == list(range(length))
    assert len(parts) == n
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


@pytest.mark.parametrize("n", [0, 4])
def test_a_split_into_empty_parts_is_refused(n: int):
    with pytest.raises(ValueError, match="3 items"):
        split_list([1, 2, 3], n)


def test_a_mean_is_over_those_that_have_the_key():
    assert dict_mean([{"a": 1.0, "b": 4.0}, {"a": 3.0}]) == {"a": 2.0, "b": 4.0}
    assert dict_mean([]) == {}
