"""What the benchmark of slow rewards says of a step with a reward that fails."""

from benchmarks import slow_rewards
from mint.testing import LocalService


def test_one_question_whose_reward_raises_is_told_and_costs_nothing_else(
    shared_service: LocalService,
):
    told = slow_rewards.outcome(slow_rewards.run(shared_service, slow_rewards.Forgiving(), 1))

    assert (told["cut"], told["failed"], told["groups"]) == (0.0, 6 / 48, 8)
    assert "error_score" in told["says"]


def test_a_run_that_ends_with_an_error_tells_it(shared_service: LocalService):
    told = slow_rewards.outcome(slow_rewards.run(shared_service, slow_rewards.Raising(), 1))

    assert told["groups"] == 0
    assert told["says"] == "ValueError: the judge does not answer in JSON"
