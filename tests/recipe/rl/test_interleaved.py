"""Groups of several sources in the proportion of their weights, the same ones after a resume."""

import asyncio
from collections import Counter

import chz
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.rl.datasets import ListDataset, names

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.interleaved import InterleavedRLDataset, InterleavedRLDatasetBuilder
from mint.recipe.rl.types import RLDataset, RLDatasetBuilder

A = ListDataset("a0 a1", "a2", "a3 a4 a5")
B = ListDataset("b0 b1 b2", "b3")


def walked(dataset: RLDataset) -> list[list[str]]:
    return [names(dataset.get_batch(index)) for index in range(len(dataset))]


def test_exact_quotas_are_kept_exactly_and_sources_go_round():
    batches = walked(InterleavedRLDataset([A, B], [3, 1], groups_per_batch=4, total_batches=5))

    assert [Counter(name[0] for name in batch) for batch in batches] == [Counter("aaab")] * 5
    drawn = {s: [n for batch in batches for n in sorted(batch) if n[0] == s] for s in "ab"}
    assert drawn["a"] == [f"a{i % 6}" for i in range(15)]
    assert drawn["b"] == [f"b{i % 4}" for i in range(5)]


def test_other_quotas_are_rounded_and_right_in_the_mean():
    batches = walked(InterleavedRLDataset([A, B], [1, 2], groups_per_batch=4, total_batches=600))

    of_a = [sum(name[0] == "a" for name in batch) for batch in batches]
    assert set(of_a) == {1, 2}  # 4 / 3 of a batch
    assert sum(of_a) / 600 == pytest.approx(4 / 3, abs=0.06)  # 3 deviations
    assert {len(batch) for batch in batches} == {4}


def test_sources_are_mixed_within_a_batch():
    batches = walked(InterleavedRLDataset([A, B], [1, 1], groups_per_batch=8, total_batches=6))

    assert any([n[0] for n in batch] != sorted(n[0] for n in batch) for batch in batches)


@given(st.integers(0, 99), st.permutations(range(8)))
def test_a_batch_is_the_same_whenever_it_is_asked_for(seed, order):
    def mixed() -> InterleavedRLDataset:
        return InterleavedRLDataset([A, B], [0.3, 0.7], 3, total_batches=8, seed=seed)

    whole, other = walked(mixed()), mixed()

    assert {index: names(other.get_batch(index)) for index in order} == dict(enumerate(whole))


def test_seeds_differ():
    first, second = (
        walked(InterleavedRLDataset([A, B], [1, 2], 4, total_batches=20, seed=seed))
        for seed in (0, 1)
    )

    assert first != second


def test_it_is_as_long_as_its_sources_hold_groups_unless_told():
    assert len(InterleavedRLDataset([ListDataset("a b", "c d"), ListDataset("e")], [1, 1], 2)) == 2
    assert len(InterleavedRLDataset([ListDataset("a")], [1], groups_per_batch=8)) == 1
    with pytest.raises(IndexError, match="there are 1"):
        InterleavedRLDataset([ListDataset("a")], [1], 8).get_batch(1)


@pytest.mark.parametrize(
    ("weights", "groups", "total", "says"),
    [
        ([1], 2, None, "2 sources and 1 weights"),
        ([1, 0], 2, None, "above 0"),
        ([1, float("nan")], 2, None, "above 0"),
        ([1, 1], 0, None, "groups_per_batch=0"),
        ([1, 1], 2, 0, "total_batches=0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(weights, groups, total, says):
    with pytest.raises(ConfigurationError, match=says):
        InterleavedRLDataset([A, B], weights, groups, total)


def test_a_source_without_groups_is_refused_by_name():
    with pytest.raises(ConfigurationError, match=r"\(ListDataset\) has no groups"):
        InterleavedRLDataset([ListDataset()], [1], 1, total_batches=1).get_batch(0)


@chz.chz
class Built(RLDatasetBuilder):
    train: str
    test: str = ""

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return ListDataset(self.train), ListDataset(self.test) if self.test else None


def test_a_builder_mixes_what_its_sources_build_and_strings_their_tests_together():
    sources: list[RLDatasetBuilder] = [
        Built(train="a"),
        Built(train="b", test="t0"),
        Built(train="c", test="t1"),
    ]

    train, test = asyncio.run(
        InterleavedRLDatasetBuilder(sources=sources, weights=[1, 1, 1], groups_per_batch=3)()
    )

    assert [sorted(batch) for batch in walked(train)] == [["a", "b", "c"]]
    assert test is not None
    assert walked(test) == [["t0"], ["t1"]]


def test_without_tests_there_is_no_test_set():
    builder = InterleavedRLDatasetBuilder(
        sources=[Built(train="a")], weights=[1], groups_per_batch=1
    )

    assert asyncio.run(builder())[1] is None
