"""One row of numbers about the episodes of a step."""

import pytest
from tests.recipe.rl.episodes import episode, group, rewarded, turn

from mint.recipe.rl.episode_metrics import compute_trajectory_metrics, history_warning


def two_turn_group():
    """Rewards 1.5 and -0.1; the first member takes two turns, the second is cut."""
    long = episode(turn([1, 2], [3], 0.5), turn([1, 2, 3, 4], [5, 6], 1.0, correct=1.0, cached=3))
    cut = episode(turn([1, 2], [7, 7, 7], -0.1, stop__max_tokens=1.0, max_tokens_reached=1.0))
    return group(long, cut, metrics=[{"judge": 4}, {}])


def test_all_numbers_of_one_group():
    told = compute_trajectory_metrics([two_turn_group()], [[]], [[1, 1]])

    assert told == {
        "env/all/reward/total": pytest.approx(0.7),
        "env/all/ac_tokens_per_turn": 2.0,  # 1 + 2 + 3 in three turns
        "env/all/ob_tokens_per_turn": pytest.approx(8 / 3),
        "env/all/turns_per_episode": 1.5,
        "env/all/total_episodes": 2,
        "env/all/total_turns": 3,
        "env/all/total_ac_tokens": 6,
        "env/all/total_ob_tokens": 8,
        "env/all/total_cached_ob_tokens": 3,
        "env/all/by_group/frac_mixed": 1.0,
        "env/all/by_group/frac_all_good": 0.0,
        "env/all/by_group/frac_all_bad": 0.0,
        "env/all/correct": 1.0,  # over those that report it
        "env/all/judge": 4.0,
        "env/all/stop/max_tokens": 1.0,
        "env/all/max_tokens_reached": 1.0,
        "env/all/frac/stop/max_tokens": 0.5,  # over all
        "env/all/datums_per_episode": 1.0,
    }


def test_constant_groups_are_good_or_bad():
    groups = [rewarded(0.5, 0.5), rewarded(0.4, 0.4), rewarded(0, 1), rewarded(-1)]

    told = compute_trajectory_metrics(groups, [[]] * 4)

    assert told["env/all/by_group/frac_mixed"] == 0.25
    assert told["env/all/by_group/frac_all_good"] == 0.25
    assert told["env/all/by_group/frac_all_bad"] == 0.5


def test_a_tag_has_numbers_of_its_own_groups():
    groups = [rewarded(0, 1), rewarded(2, 2), rewarded(4, 4)]

    told = compute_trajectory_metrics(groups, [["easy"], ["easy", "long"], ["hard"]])

    assert told["env/all/reward/total"] == pytest.approx(13 / 6)
    assert told["env/easy/reward/total"] == 1.25
    assert told["env/long/reward/total"] == 2.0
    assert told["env/hard/by_group/frac_all_good"] == 1.0


def test_tags_that_select_everything_say_nothing_new():
    told = compute_trajectory_metrics([rewarded(0, 1)] * 2, [["sums"], ["sums"]])

    assert {name.split("/")[1] for name in told} == {"all"}


def test_a_group_that_has_a_tag_twice_counts_once():
    told = compute_trajectory_metrics([rewarded(0, 1)] * 2, [["sums", "sums"], []])

    assert told["env/sums/total_episodes"] == 2


def test_an_episode_reports_its_end_once():
    played = episode(turn([1], [2], stop__x=1.0), turn([1], [2], stop__x=1.0, stop__y=0.0))

    told = compute_trajectory_metrics([group(played)], [[]])

    assert told["env/all/frac/stop/x"] == 1.0
    assert "env/all/frac/stop/y" not in told


def test_no_groups_no_numbers():
    assert compute_trajectory_metrics([], []) == {}


def test_only_a_users_own_name_ends_in_correct():
    told = compute_trajectory_metrics([rewarded(0, 1)], [["a"]], [[1, 1]])

    assert [name for name in told if name.endswith("/correct")] == []


def test_datums_are_counted_where_they_were_assembled():
    groups = [rewarded(0, 1), rewarded(1, 1)]

    told = compute_trajectory_metrics(groups, [[], []], [[3, 0], None])

    assert told["env/all/datums_per_episode"] == 1.5


@pytest.mark.parametrize(
    ("datums", "turns", "warns"), [(3.0, 3.0, True), (1.5, 3.0, False), (2.0, 1.0, False)]
)
def test_history_that_is_trained_on_again_is_worth_a_warning(datums, turns, warns):
    told = {"env/all/datums_per_episode": datums, "env/all/turns_per_episode": turns}

    said = history_warning(told)

    assert (said is not None) == warns
    assert said is None or "3.0 datums" in said
    assert history_warning({}) is None
