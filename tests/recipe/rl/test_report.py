"""The numbers of one step."""

from collections import Counter

from tests.recipe.rl.guessing import GuessGroup

from mint.recipe.rl.groups import Group
from mint.recipe.rl.report import Tally, gradient_metrics, spread
from mint.recipe.rl.token_usage import TokenUsage


def test_metrics_of_several_gradients_are_put_together_as_their_names_say():
    parts = [
        {"loss:sum": 1.0, "norm:max": 3.0, "gap:min": -1.0, "share:mean": 0.25},
        {"loss:sum": 2.0, "norm:max": 2.0, "gap:min": -2.0, "share:mean": 0.75, "late": 4.0},
    ]

    assert gradient_metrics(parts) == {
        "loss:sum": 3.0, "norm:max": 3.0, "gap:min": -2.0, "share:mean": 0.5, "late": 4.0,
    }  # fmt: skip


def test_a_tally_comes_back_from_a_checkpoint_as_it_was():
    tally = Tally(TokenUsage(sampled=3, trained=5), Counter({"KeyError": 2}), groups_skipped=1)

    assert Tally.from_json(tally.to_json()) == tally
    assert Tally.from_json({}) == Tally()


def test_a_skipped_group_counts_with_the_error_that_ended_it():
    tally = Tally()
    failed = Group(GuessGroup(0), 0, error=KeyError("gone"))

    tally.add([failed, failed], TokenUsage(sampled=1))

    assert tally.error_metrics() == {
        "rollout_errors/KeyError": 2,
        "rollout_errors/total": 2,
        "rollout_errors/groups_skipped": 2,
    }


def test_spread_is_the_ends_and_the_mean():
    assert spread("age", [0, 1, 5]) == {"age_max": 5, "age_min": 0, "age_mean": 2}
    assert spread("age", []) == {}
