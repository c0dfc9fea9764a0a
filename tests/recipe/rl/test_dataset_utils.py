"""Epochs, and data sets one after the other."""

import pytest
from tests.recipe.rl.datasets import ListDataset, names

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.dataset_utils import ChainedRLDataset, EpochCycledRLDataset
from mint.recipe.rl.types import RLDataset

TEN = ListDataset(*"abcdefghij")


def walked(dataset: RLDataset) -> list[str]:
    return [name for index in range(len(dataset)) for name in names(dataset.get_batch(index))]


def test_without_a_seed_epochs_repeat():
    assert walked(EpochCycledRLDataset(ListDataset("a b", "c"), 2)) == ["a", "b", "c"] * 2


def test_with_a_seed_each_epoch_has_every_batch_once_in_its_own_order():
    order = walked(EpochCycledRLDataset(TEN, 3, shuffle_seed=7))

    epochs = [order[:10], order[10:20], order[20:]]
    assert [sorted(epoch) for epoch in epochs] == [list("abcdefghij")] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_batch_is_the_same_in_whatever_order_it_is_asked_for():
    def batch(index: int) -> list[str]:
        return names(EpochCycledRLDataset(TEN, 3, shuffle_seed=7).get_batch(index))

    whole = walked(EpochCycledRLDataset(TEN, 3, shuffle_seed=7))
    backwards = EpochCycledRLDataset(TEN, 3, shuffle_seed=7)

    assert [batch(index)[0] for index in range(30)] == whole
    assert [names(backwards.get_batch(i))[0] for i in reversed(range(30))] == whole[::-1]
    assert walked(EpochCycledRLDataset(TEN, 3, shuffle_seed=8)) != whole


def test_there_is_no_batch_outside_and_no_run_of_no_epochs():
    for index in (-1, 20):
        with pytest.raises(IndexError, match="there are 20"):
            EpochCycledRLDataset(TEN, 2).get_batch(index)
    with pytest.raises(ConfigurationError, match="num_epochs=0"):
        EpochCycledRLDataset(TEN, 0)


def test_a_chain_has_the_batches_of_its_parts_in_order():
    chain = ChainedRLDataset([ListDataset("a", "b c"), ListDataset(), ListDataset("d")])

    assert len(chain) == 3
    assert walked(chain) == ["a", "b", "c", "d"]
    for index in (-1, 3):
        with pytest.raises(IndexError, match="there are 3"):
            chain.get_batch(index)
