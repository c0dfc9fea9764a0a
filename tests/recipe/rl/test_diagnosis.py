"""A step that taught nothing is told from one that did, and the sentence names the cause."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.rl.episodes import episode, group, rewarded, turn

from mint.recipe.rl.data_processing import advantages_of, assemble_training_data
from mint.recipe.rl.diagnosis import Cause, StepHealth, examine_step
from mint.recipe.rl.types import Trajectory, TrajectoryGroup

CUT_METRICS: dict[str, Any] = {"max_tokens_reached": 1.0, "stop__max_tokens": 1.0}


def cut(length: int = 4, reward: float = -0.1) -> Trajectory:
    """As EnvFromMessageEnv ends an answer that was cut: the env's own step was not called."""
    return episode(turn([1, 2], [7] * length, reward, stop_reason="length", **CUT_METRICS))


def unparsed() -> Trajectory:
    return episode(turn([1, 2], [7], -1.0, parse_error=1.0, stop__parse_error=1.0))


def no_room() -> Trajectory:
    return episode(turn([], [], -0.1, **CUT_METRICS))


def timed_out() -> Trajectory:
    return episode(turn([1], [2], 0.0, stop__rollout_timeout=1.0))


def good(reward: float = 1.0) -> Trajectory:
    return episode(turn([1, 2], [7, 8], reward, correct=1.0))


def health(*groups: TrajectoryGroup, max_tokens: int = 4, trained: bool = True, **told):
    """Of a step that trains all it has, unless told."""
    data, _ = assemble_training_data(groups, advantages_of(groups)) if trained else ([], [])
    logprobs = [datum.loss_fn_inputs["logprobs"].tolist() for datum in data]
    given = {"groups_failed": 0, "loss_metrics": {}, "training_logprobs_D": logprobs or None}
    return examine_step(groups=groups, data_D=data, max_tokens=max_tokens, **{**given, **told})


def test_a_step_with_unequal_rewards_learns_and_there_is_nothing_to_say():
    found = health(group(good(), good(0.0)), rewarded(1, 1))

    assert found.could_learn
    assert found.cause is None
    assert found.advice() is None
    assert (found.episodes, found.groups, found.groups_equal) == (4, 2, 1)
    assert (found.datums, found.datums_without_signal) == (4, 2)
    assert (found.reward_lowest, found.reward_highest, found.longest_answer) == (0.0, 1.0, 2)


def test_the_page_where_every_episode_is_cut_at_64_tokens():
    found = health(group(cut(64), cut(64), cut(64), cut(64)), max_tokens=64)

    assert found.cause is Cause.cut
    assert found.advice() == (
        "Could not learn: all episodes hit max_tokens=64 (4 of 4), so the environment was never "
        "called and no reward was computed: raise max_tokens or use a non-thinking renderer."
    )
    told = found.metrics()
    assert told["health/could_learn"] == 0.0
    assert told["health/episodes_cut_by_length"] == 1.0
    assert told["health/episodes_never_graded"] == 1.0
    assert told["health/groups_with_equal_rewards"] == 1.0
    assert told["health/datums_without_signal"] == 1.0


def test_a_limit_below_max_tokens_is_not_blamed_on_max_tokens():
    found = health(group(cut(5), cut(6)), max_tokens=64)

    assert found.cause is Cause.cut
    assert "below max_tokens=64 (longest answer 6)" in str(found.advice())
    assert "raise max_trajectory_tokens" in str(found.advice())


def test_an_env_that_grades_what_is_cut_was_called():
    own = episode(turn([1], [7] * 4, 0.0, stop_reason="length", correct=0.0))

    found = health(group(own, own))

    assert found.never_graded == 0
    assert "(2 of 2), and their rewards are equal" in str(found.advice())


def test_a_grader_of_the_group_counts_as_having_seen_the_answers():
    graded = group(cut(), cut(), metrics=[{"judge": 0.0}, {"judge": 0.0}])
    clamped = group(cut(), cut(), metrics=[{"zero_reward_on_limit": 1.0}] * 2)

    assert health(graded).never_graded == 0
    assert health(clamped).never_graded == 2


def test_an_answer_that_was_cut_and_went_on_is_no_cut_episode():
    went_on = episode(turn([1], [2], stop_reason="length"), turn([1, 2, 3], [4], 1.0))

    assert health(group(went_on, good(0.0))).cut == 0


@pytest.mark.parametrize(
    ("groups", "cause", "says"),
    [
        ([group(unparsed(), unparsed())], Cause.parse_errors, "no answer could be parsed (2 of 2)"),
        (
            [group(no_room(), no_room())],
            Cause.no_room,
            "no prompt left room for an answer (2 of 2)",
        ),
        ([group(timed_out(), timed_out())], Cause.timed_out, "raise rollout_timeout_seconds"),
        ([group(cut(), unparsed())], None, None),  # -0.1 and -1: unequal, so something is learnt
        (
            [group(cut(), cut()), group(unparsed(), unparsed())],
            Cause.never_graded,
            "never called (4 of 4; 2 cut by length, 2 not parsed)",
        ),
        ([group(cut()), group(good())], Cause.group_of_one, "use a group size of 2 or more"),
        (
            [group(good(0.0), good(0.0))],
            Cause.equal_rewards,
            "every episode got the reward 0 (2 of 2): give easier problems",
        ),
        ([group(good(), good())], Cause.equal_rewards, "a good one: give harder problems"),
        (
            [rewarded(0, 0), rewarded(1, 1)],
            Cause.equal_rewards,
            "in each of 2 groups all rewards are equal",
        ),
        (
            [group(cut(), cut(), good(-0.1))],
            Cause.equal_rewards,
            "reward -0.1 (3 of 3), and 2 hit a limit of tokens (max_tokens=4): raise max_tokens",
        ),
        (
            [group(unparsed(), good(-1.0))],
            Cause.equal_rewards,
            "and 1 could not be parsed: check the renderer",
        ),
    ],
)
def test_the_most_specific_cause_is_named(groups, cause, says):
    found = health(*groups)

    assert found.cause is cause
    assert says is None or says in str(found.advice())
    assert str(found.advice()).count("\n") == 0


def test_an_episode_over_its_context_is_told():
    full = episode(turn([1], [2], -0.1, context_overflow=1.0, stop__context_overflow=1.0, score=3))

    found = health(group(full, full))

    assert found.cause is Cause.over_context
    assert found.never_graded == 0  # the env's step was called, and its reward replaced


def test_no_groups_at_all():
    assert "all rollouts failed (3 groups)" in str(health(groups_failed=3).advice())
    assert "no groups: see the data set" in str(health().advice())


def test_rewards_that_differ_where_no_token_was_sampled():
    empty = episode(turn([], [], 0.9, stop__max_tokens=1.0))

    found = health(group(no_room(), empty))

    assert found.cause is Cause.no_signal
    assert "there is no datum" in str(found.advice())


def test_rewards_that_differ_where_every_turn_is_masked():
    masked = [
        episode(turn([1], [2], reward, parse_error=1.0, parse_error_masked=1.0))
        for reward in (0.0, -1.0)
    ]

    found = health(group(*masked))

    assert found.cause is Cause.no_signal
    assert "none of 2 datums has an advantage" in str(found.advice())


def test_a_kl_penalty_alone_is_not_learning_from_rewards():
    groups = [group(good(), good())]
    data, _ = assemble_training_data(groups, [[0.01, -0.01]])  # as if a penalty had been added

    found = examine_step(groups=groups, groups_failed=0, data_D=data, training_logprobs_D=None,
                         max_tokens=4, loss_metrics={})  # fmt: skip

    assert found.datums_without_signal == 0
    assert found.cause is Cause.equal_rewards


def test_the_gap_between_sampler_and_trainer_and_ratios_that_ppo_would_clip():
    # targets: 2 and the sampled 7 8, s = -0.5; p - s = 0.1 and -0.5: ratios 1.105 and 0.607
    found = health(group(good(), good(0.0)), training_logprobs_D=[[9, -0.4, -1.0], [9, -0.5, -0.5]])

    assert found.gap_mean == pytest.approx(0.15)
    assert found.gap_max == pytest.approx(0.5)
    assert found.ratios_clipped == 0.25
    assert found.metrics()["health/gap_mean"] == found.gap_mean


def test_without_training_there_is_no_gap_to_tell():
    found = health(rewarded(1, 1), trained=False)

    assert found.gap_mean is None
    assert "health/gap_mean" not in found.metrics()
    assert found.metrics()["health/datums_without_signal"] == 0.0


@pytest.mark.parametrize(
    "told",
    [
        {"loss_metrics": {"loss:sum": math.nan}},
        {"training_logprobs_D": [[0, math.nan, 0], [0, 0, 0]]},
        {"training_logprobs_D": [[0, -math.inf, 0], [0, 0, 0]]},
    ],
)
def test_a_loss_that_is_no_number_is_the_first_thing_to_say(told):
    found = health(group(good(), good(0.0)), **told)

    assert found.cause is Cause.loss_not_finite
    assert "not a finite number" in str(found.advice())
    assert all(math.isfinite(value) for value in found.metrics().values())


def test_other_numbers_of_the_server_may_be_what_they_like():
    assert health(rewarded(0, 1), loss_metrics={"lossless": math.inf}).could_learn


counts = st.integers(0, 40)


@given(st.data())
def test_what_is_written_to_a_row_is_read_back_as_it_was(data):
    episodes, groups, datums = (data.draw(counts) for _ in range(3))
    names = ("no_room", "cut", "cut_at_max_tokens", "parse_errors", "over_context", "timed_out",
             "never_graded")  # fmt: skip
    some = {name: data.draw(st.integers(0, episodes)) for name in names}
    measured = st.none() | st.floats(0, 10)
    health = StepHealth(
        episodes=episodes, groups=groups, datums=datums, max_tokens=64,
        largest_group=data.draw(counts), groups_failed=data.draw(counts),
        groups_equal=data.draw(st.integers(0, groups)), longest_answer=data.draw(counts),
        datums_without_signal=data.draw(st.integers(0, datums)),
        reward_lowest=data.draw(st.floats(-9, 0)), reward_highest=data.draw(st.floats(0, 9)),
        gap_mean=data.draw(measured), gap_max=data.draw(measured),
        ratios_clipped=data.draw(measured), loss_is_finite=data.draw(st.booleans()), **some,
    )  # fmt: skip

    assert StepHealth.from_metrics(health.metrics(), max_tokens=64) == health


def test_a_row_without_health_has_none():
    assert StepHealth.from_metrics({"step": 3, "env/all/reward/total": 1.0}, 64) is None


def scored(*graded: str) -> TrajectoryGroup:
    """An episode per word: how its adapter fared."""
    metrics = [
        {"adapter_timeout": float(word == "late"), "adapter_error": float(word == "failed")}
        for word in graded
    ]
    return group(*(episode(turn([1, 2], [7])) for _ in graded), metrics=metrics)


def test_an_adapter_that_scores_nothing_in_time_is_the_cause():
    found = health(scored("late", "late"), scored("late", "late"))

    assert found.cause is Cause.scored_too_late
    assert "no answer was scored in time (4 of 4)" in str(found.advice())
    assert found.metrics()["health/episodes_adapter_timeout"] == 1.0


def test_an_adapter_that_fails_each_time_is_the_cause():
    found = health(scored("failed", "failed"))

    assert found.cause is Cause.scoring_failed
    assert "no answer could be scored (2 of 2)" in str(found.advice())
    assert found.metrics()["health/episodes_adapter_error"] == 1.0


def test_equal_rewards_of_which_half_were_set_for_failures_name_them():
    found = health(scored("failed", "late", "fine", "fine"))

    assert found.cause is Cause.equal_rewards
    assert "and 2 were not scored" in str(found.advice())


def test_an_adapter_without_failures_is_no_cause():
    found = health(scored("fine", "fine"))

    assert found.cause is Cause.equal_rewards
    assert found.metrics()["health/episodes_adapter_error"] == 0.0
    assert found.metrics()["health/episodes_adapter_timeout"] == 0.0
    assert found.never_graded == 0


def test_answers_that_were_cut_and_are_all_good_are_solved_and_not_cut():
    ended = turn([1, 2], [7] * 4, 1.0, stop_reason="length", stop__max_tokens=1.0)

    found = health(group(episode(ended), episode(ended)))

    assert found.cause is Cause.equal_rewards
    assert "which is a good one: give harder problems, or stop here" in str(found.advice())
