"""Credit is relative to the group."""

import logging

import pytest
from tests.recipe.rl.episodes import episode, group, rewarded, turn

from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.advantages import (
    advantages_of,
    compute_advantages,
    has_equal_rewards,
    remove_constant_reward_groups,
)


def test_an_advantage_is_the_reward_less_the_groups_mean_and_nothing_else():
    first, second = advantages_of([rewarded(1.0, 0.0, 0.0, 3.0), rewarded(10.0, 10.5)])

    assert first.tolist() == [0.0, -1.0, -1.0, 2.0]  # mean 1; not divided by the deviation
    assert second.tolist() == [-0.25, 0.25]


def test_step_rewards_and_the_final_reward_add_up():
    two_turns = episode(turn([1], [2], 0.25), turn([1, 2, 3], [4], 0.5))
    one_turn = episode(turn([1], [2], 0.0))

    [advantages] = advantages_of([group(two_turns, one_turn, final=[1.0, 0.75])])

    assert advantages.tolist() == [0.5, -0.5]  # 1.75 and 0.75


def test_alone_in_its_group_an_episode_has_no_advantage():
    assert [a.tolist() for a in advantages_of([rewarded(5.0)])] == [[0.0]]


def test_equal_rewards_give_exactly_no_advantage():
    [advantages] = advantages_of([rewarded(0.1, 0.1, 0.1)])  # whose mean is not 0.1 in floats

    assert advantages.tolist() == [0.0, 0.0, 0.0]


def test_the_mean_is_over_the_members_that_are_left():
    lost_one = group(episode(turn([1], [2], 1.0)), episode(turn([1], [2], 0.0)))

    assert advantages_of([lost_one])[0].tolist() == [0.5, -0.5]


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_refused_with_its_group_and_member(reward):
    with pytest.raises(DataValidationError, match=r"group 1, member 2: the total reward is"):
        advantages_of([rewarded(0.0), rewarded(0.0, 1.0, reward)])


def test_the_public_door_gives_float_tensors():
    [tensor] = compute_advantages([rewarded(1.0, 0.0)])

    assert str(tensor.dtype) == "torch.float32"
    assert tensor.tolist() == [0.5, -0.5]


def test_constant_groups_go_and_the_others_keep_their_order():
    groups = [rewarded(1, 1), rewarded(0, 1), rewarded(0, 0), rewarded(2, 3)]

    assert [has_equal_rewards(one) for one in groups] == [True, False, True, False]
    assert remove_constant_reward_groups(groups) == [groups[1], groups[3]]


def test_where_all_are_constant_the_first_stays_and_it_is_said(caplog):
    groups = [rewarded(1, 1), rewarded(0, 0)]

    with caplog.at_level(logging.WARNING, "mint.recipe"):
        assert remove_constant_reward_groups(groups) == [groups[0]]

    assert "in all 2 groups" in caplog.text
    assert remove_constant_reward_groups([]) == []
