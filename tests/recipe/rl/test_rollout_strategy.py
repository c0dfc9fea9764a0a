"""What becomes of a group whose member fails."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.recipe.rl.episodes import episode, turn
from tests.recipe.rl.players import Count, Envs, Failing, run

from mint.recipe.exceptions import AllTrajectoriesFailedError, ConfigurationError
from mint.recipe.rl.rollout_strategy import (
    FailFast,
    MinViableGroup,
    Played,
    RetryOnFailure,
    RolloutStrategy,
    rollout_errors_of,
)
from mint.recipe.rl.types import Env, RolloutError, Trajectory


class Named(Count):
    """An env that can be told apart and that can be closed."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Hanging(Count):
    """An env whose play never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.is_playing = False


GONE = RolloutError("RuntimeError", "the sandbox is gone")


async def play(env: Env) -> Trajectory:
    """An episode that says whose it is."""
    await asyncio.sleep(0)
    if isinstance(env, Failing):
        raise RuntimeError("the sandbox is gone")
    if isinstance(env, Hanging):
        env.is_playing = True
        try:
            await asyncio.Event().wait()
        finally:
            env.is_playing = False
    return episode(turn([1], [2], name=hash(getattr(env, "name", ""))))


def group(strategy: RolloutStrategy, *groups: Sequence[Env]) -> Played:
    builder = Envs(*groups)
    return run(_made_and_played(strategy, builder))


async def _made_and_played(strategy: RolloutStrategy, builder: Envs) -> Played:
    return await strategy.play_group(builder, await builder.make_envs(), play)


def names(played: Played) -> list[str]:
    assert [trajectory.transitions[0].metrics["name"] for trajectory in played.trajectories_G] == [
        hash(env.name) for env in played.envs_G if isinstance(env, Named)
    ]
    return [env.name for env in played.envs_G if isinstance(env, Named)]


A, B, C = Named("a"), Named("b"), Named("c")


@pytest.mark.parametrize("strategy", [FailFast(), RetryOnFailure(), MinViableGroup()])
def test_a_group_without_failures_is_the_same_under_every_strategy(strategy: RolloutStrategy):
    played = group(strategy, [A, B, C])

    assert names(played) == ["a", "b", "c"]
    assert played.errors == []


# ----------------------------------------------------------------- FailFast


def test_the_first_error_comes_as_it_is_and_nobody_is_left_running():
    hanging = Hanging()

    with pytest.raises(RuntimeError, match="sandbox"):
        group(FailFast(), [hanging, Failing(), Hanging()])  # `run` looks for tasks left behind

    assert not hanging.is_playing


def test_the_error_keeps_its_own_cause():
    async def fails(env: Env) -> Trajectory:
        raise RuntimeError("outer") from ValueError("inner")

    with pytest.raises(RuntimeError, match="outer") as failure:
        run(FailFast().play_group(Envs(), [A], fails))

    assert isinstance(failure.value.__cause__, ValueError)


# ----------------------------------------------------------- RetryOnFailure


def test_a_member_that_fails_is_played_again_in_its_place():
    spare = [Named("x"), Named("y"), Named("z")]
    played = group(RetryOnFailure(), [A, Failing(), C], spare)

    assert names(played) == ["a", "y", "c"]
    assert played.errors == [GONE]
    assert [env.is_closed for env in spare] == [True, False, True]


def test_the_tries_are_the_whole_groups():
    builder = Envs([Failing(), Failing()], [Failing(), B], [A, Failing()], [A, B])

    with pytest.raises(RuntimeError, match="sandbox") as failure:
        run(_made_and_played(RetryOnFailure(max_retries=1), builder))

    assert builder.made == 2
    assert rollout_errors_of(failure.value) == [GONE, GONE]


def test_when_the_tries_are_used_up_the_others_are_ended():
    hanging = Hanging()

    with pytest.raises(RuntimeError, match="sandbox"):
        group(RetryOnFailure(max_retries=0), [hanging, Failing()])

    assert not hanging.is_playing


@pytest.mark.parametrize(
    "strategy", [RetryOnFailure(per_rollout_timeout=0.01), RetryOnFailure(3, 0.01)]
)
def test_an_attempt_that_takes_too_long_has_failed(strategy: RolloutStrategy):
    played = group(strategy, [A, Hanging()], [Named("x"), Named("y")])

    assert names(played) == ["a", "y"]
    [error] = played.errors
    assert error.error_type == "TimeoutError"
    assert "per_rollout_timeout=0.01" in error.error_message


def test_a_builder_whose_members_depend_on_each_other_is_not_retried():
    class Game(Envs):
        retryable = False

    for strategy in (RetryOnFailure(), MinViableGroup(min_successful=1)):
        builder = Game([A, Failing(), C], [A, B, C])
        with pytest.raises((RuntimeError, AllTrajectoriesFailedError), match="sandbox"):
            run(_made_and_played(strategy, builder))
        assert builder.made == 1


def test_a_builder_that_makes_a_smaller_group_the_second_time_is_named():
    with pytest.raises(IndexError, match=r"Envs\.make_envs gave 1 envs .* member 1"):
        group(RetryOnFailure(), [A, Failing()], [A])


def test_a_spare_env_that_cannot_be_closed_disturbs_nobody(caplog: pytest.LogCaptureFixture):
    class Stuck(Named):
        def close(self) -> Any:
            raise OSError("busy")

    played = group(RetryOnFailure(), [A, Failing()], [Stuck("x"), B])

    assert names(played) == ["a", "b"]
    assert "Stuck.close failed" in caplog.text


def test_cancelling_a_group_is_no_failure_of_its_members():
    async def cancelled() -> None:
        builder = Envs([Hanging(), Hanging()])
        task = asyncio.create_task(_made_and_played(RetryOnFailure(), builder))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert builder.made == 1

    run(cancelled())


# ----------------------------------------------------------- MinViableGroup


def test_enough_members_are_enough():
    builder = Envs([A, Failing(), B, C])
    played = run(_made_and_played(MinViableGroup(), builder))

    assert names(played) == ["a", "b", "c"]  # 3 of 4 is the floor
    assert played.errors == [GONE]
    assert builder.made == 1


def test_below_the_floor_a_member_is_played_again():
    played = group(
        MinViableGroup(), [A, Failing(), B, Failing()], [Named(letter) for letter in "wxyz"]
    )

    assert names(played) in (["a", "x", "b"], ["a", "b", "z"])
    assert played.errors == [GONE, GONE]


def test_below_the_floor_without_tries_left_the_group_has_failed():
    hanging = Hanging()
    strategy = MinViableGroup(min_successful=2, max_retries=0)

    with pytest.raises(AllTrajectoriesFailedError, match="fewer than 2 of 3") as failure:
        group(strategy, [hanging, Failing(), Failing()])

    assert isinstance(failure.value.__cause__, RuntimeError)
    assert rollout_errors_of(failure.value) == [GONE, GONE]
    assert not hanging.is_playing


def test_a_floor_above_the_group_is_refused():
    with pytest.raises(ConfigurationError, match="min_successful=3"):
        group(MinViableGroup(min_successful=3), [A, B])


# ---------------------------------------------------------------- tolerance


@pytest.mark.parametrize(
    ("tolerance", "strategy"),
    [
        (None, FailFast()),
        (False, FailFast()),
        (True, RetryOnFailure()),
        (MinViableGroup(2), MinViableGroup(2)),
    ],
)
def test_a_tolerance_names_a_strategy(tolerance: Any, strategy: RolloutStrategy):
    assert RolloutStrategy.of(tolerance) == strategy


def test_anything_else_names_none():
    with pytest.raises(ConfigurationError, match="rollout_error_tolerance='retry'"):
        RolloutStrategy.of("retry")  # type: ignore[arg-type]


def test_only_fail_fast_ends_the_run():
    assert not FailFast().catches_group_errors
    assert RetryOnFailure().catches_group_errors
    assert MinViableGroup().catches_group_errors


def test_an_error_from_elsewhere_stands_for_itself():
    assert rollout_errors_of(ValueError("x")) == [RolloutError("ValueError", "x")]
