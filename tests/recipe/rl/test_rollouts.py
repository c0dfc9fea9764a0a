"""Groups: played, scored, clamped, cleaned up; and where they are played."""

import asyncio
import multiprocessing
import pickle
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.recipe.fake_service import FakeService
from tests.recipe.rl.players import (
    RENDERER,
    Chat,
    Count,
    Envs,
    Failing,
    Script,
    Silent,
    run,
    said,
    sampled,
)

from mint import ModelInput
from mint.recipe.completers import TinkerTokenCompleter
from mint.recipe.exceptions import ConfigurationError, DataValidationError
from mint.recipe.rl.message_env import EnvFromMessageEnv
from mint.recipe.rl.rollout_limits import RolloutLimits, TerminationRewardPolicy
from mint.recipe.rl.rollout_strategy import RetryOnFailure
from mint.recipe.rl.rollouts import (
    GroupRollout,
    do_group_rollout,
    do_group_rollout_and_filter_constant_reward,
    get_rollout_executor,
    set_rollout_executor,
)
from mint.recipe.rl.types import Env, Metrics, StepResult, Trajectory, TrajectoryGroup
from mint.recipe.stores.timing import measuring

ONE = sampled([7, 0])


def played(builder: Envs, policy: Any = None, **settings: Any) -> TrajectoryGroup:
    return run(do_group_rollout(builder, policy or Script(ONE), **settings))


class Graded(Envs):
    """Gives its members these final rewards."""

    def __init__(self, rewards: Sequence[float], *groups: Sequence[Env]) -> None:
        super().__init__(*groups)
        self.rewards = rewards
        self.graded: list[int] = []

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        self.graded = [len(trajectory_group), len(env_group)]
        return [(reward, {"graded": 1.0}) for reward in self.rewards]


class Timed(Count):
    """Allows its policy 10 ms."""

    rollout_limits = RolloutLimits(rollout_timeout_seconds=0.01)


# ------------------------------------------------------------ play and score


def test_a_group_is_its_members_in_order_with_step_and_final_rewards():
    builder = Graded([10.0, 20.0, 30.0], [Count(1), Count(2), Count(3)])
    group = played(builder)

    assert [len(one.transitions) for one in group.trajectories_G] == [1, 2, 3]
    assert group.final_rewards_G == [10.0, 20.0, 30.0]
    assert group.metrics_G == [{"graded": 1.0}] * 3
    assert group.get_total_rewards() == [11.0, 22.0, 33.0]
    assert builder.graded == [3, 3]


def test_a_builder_that_scores_nothing_leaves_the_steps_rewards():
    group = played(Envs([Count(2), Count(1)]))

    assert group.get_total_rewards() == [2.0, 1.0]
    assert group.metrics_G == [{}, {}]


def test_members_play_at_the_same_time():
    class Meets(Count):
        """Steps only once both have come this far."""

        def __init__(self, barrier: asyncio.Barrier) -> None:
            super().__init__()
            self.barrier = barrier

        async def step(self, action: list[int], *, extra: Any = None) -> Any:
            await self.barrier.wait()
            return await super().step(action)

    async def both() -> TrajectoryGroup:
        barrier = asyncio.Barrier(2)
        return await do_group_rollout(Envs([Meets(barrier), Meets(barrier)]), Script(ONE))

    assert len(run(asyncio.wait_for(both(), 10)).trajectories_G) == 2


def test_rewards_that_do_not_match_the_members_are_refused():
    with pytest.raises(DataValidationError, match="gave 1 rewards for 2 episodes"):
        played(Graded([1.0], [Count(), Count()]))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ([1.0, 2.0], "gave 1.0 for an episode. Give one .reward, metrics."),
        ([(1.0, None), (2.0, None)], "for an episode"),
        (None, "gave None"),
        ([(None, {}), (1.0, {})], "the reward is None"),
        ([(1.0, {"a": "x"}), (1.0, {})], "the metric 'a' is 'x'"),
    ],
)
def test_final_rewards_of_another_form_are_refused_by_the_name_of_their_maker(
    given: Any, complaint: str
):
    class Odd(Envs):
        async def compute_group_rewards(self, trajectory_group: Any, env_group: Any) -> Any:
            return given

    with pytest.raises(DataValidationError, match=f"Odd.compute_group_rewards.*{complaint}"):
        played(Odd([Count(), Count()]))


@pytest.mark.parametrize(
    ("reward", "metrics", "complaint"),
    [
        (None, {}, "Odd, turn 0: the reward is None"),
        ("1", {}, "Odd, turn 0: the reward is '1'"),
        (1.0, {"why": "short"}, "Odd, turn 0: the metric 'why' is 'short'"),
        (1.0, {"why": None}, "Odd, turn 0: the metric 'why' is None"),
    ],
)
def test_what_is_no_number_is_refused_before_it_is_trained_on(
    reward: Any, metrics: Any, complaint: str
):
    class Odd(Count):
        async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
            return StepResult(reward, True, ModelInput.empty(), [], metrics)

    with pytest.raises(DataValidationError, match=complaint):
        played(Envs([Odd(), Odd()]))


def test_numbers_of_any_kind_will_do():
    class Kinds(Count):
        async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
            metrics: Any = {"a": np.float32(1), "b": True, "c": float("nan"), "d": np.array(2)}
            return StepResult(np.int64(1), True, ModelInput.empty(), [], metrics)  # type: ignore[arg-type]

    assert played(Envs([Kinds()])).get_total_rewards() == [1]


def test_a_group_of_nobody_is_refused():
    with pytest.raises(DataValidationError, match="make_envs gave no envs"):
        played(Envs([]))


def test_failed_attempts_stay_with_the_group():
    group = played(Envs([Count(), Failing()], [Count(), Count()]), strategy=RetryOnFailure())

    assert [error.error_message for error in group.rollout_errors] == ["the sandbox is gone"]
    assert len(group.trajectories_G) == 2


def test_scoring_is_measured():
    async def timed() -> dict[str, float]:
        with measuring() as times:
            await do_group_rollout(Envs([Count()]), Script(ONE))
        return times.metrics()

    assert "time/compute_group_rewards" in run(timed())


@pytest.mark.parametrize("where", ["make_envs", "step", "compute_group_rewards"])
def test_a_cancellation_that_nobody_asked_for_is_an_error_and_no_silence(where: str):
    class Stray(Count):
        async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
            if where == "step":
                raise asyncio.CancelledError
            return await super().step(action)

    class Strays(Envs):
        async def make_envs(self) -> Sequence[Env]:
            if where == "make_envs":
                raise asyncio.CancelledError
            return await super().make_envs()

        async def compute_group_rewards(self, trajectory_group: Any, env_group: Any) -> Any:
            raise asyncio.CancelledError

    builder = Strays([Stray(), Count()])
    with pytest.raises(RuntimeError, match="raised CancelledError, although nobody cancelled"):
        played(builder)
    assert builder.cleanups == 1


def test_a_member_that_was_cancelled_from_within_is_played_again():
    class Stray(Count):
        async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
            raise asyncio.CancelledError

    group = played(Envs([Stray(), Count()], [Count(), Count()]), strategy=RetryOnFailure())

    assert group.get_total_rewards() == [1.0, 1.0]
    assert [error.error_type for error in group.rollout_errors] == ["RuntimeError"]


def test_runs_one_after_the_other_in_one_process_do_not_disturb_each_other():
    first = played(Envs([Count(2), Count(2)]))
    second = played(Envs([Count(2), Count(2)]))

    assert first.get_total_rewards() == second.get_total_rewards() == [2.0, 2.0]


# -------------------------------------------------------------- termination

CLAMP = TerminationRewardPolicy(zero_reward_on_limit=True)


def test_an_episode_that_a_limit_ended_earns_nothing():
    class Two(Count):
        rollout_limits = RolloutLimits(max_turns=2)

    builder = Graded([5.0, 5.0, -9.0], [Two(9), Two(2), Two(9)])
    group = played(builder, termination=CLAMP)

    # 2 + 5 is clamped; 2 + 5 came to its end by itself; 2 - 9 stays what it is
    assert group.get_total_rewards() == [0.0, 7.0, -7.0]
    clamped = [metrics.get("zero_reward_on_limit") for metrics in group.metrics_G]
    assert clamped == [1.0, None, 1.0]


def test_without_the_policy_it_keeps_what_it_has():
    class Two(Count):
        rollout_limits = RolloutLimits(max_turns=2)

    assert played(Envs([Two(9)])).get_total_rewards() == [2.0]


def test_the_policy_names_what_counts_as_a_limit():
    class Two(Count):
        rollout_limits = RolloutLimits(max_turns=2)

    termination = TerminationRewardPolicy(zero_reward_on_limit=True, limit_stop_reasons=("odd",))

    assert played(Envs([Two(9)]), termination=termination).get_total_rewards() == [2.0]


SPARING = TerminationRewardPolicy(zero_reward_on_limit=True, skip_grading_on_timeout=True)


def test_a_group_that_ran_out_of_time_altogether_is_not_graded():
    builder = Graded([1.0, 1.0], [Timed(), Timed()])
    group = played(builder, Silent(), termination=SPARING)

    assert builder.graded == []
    assert group.get_total_rewards() == [0.0, 0.0]


@pytest.mark.parametrize("termination", [CLAMP, TerminationRewardPolicy()])
def test_it_is_graded_where_that_is_not_asked_for(termination: TerminationRewardPolicy):
    builder = Graded([1.0, 1.0], [Timed(), Timed()])
    played(builder, Silent(), termination=termination)

    assert builder.graded == [2, 2]


def test_it_is_graded_if_one_member_came_to_an_end():
    class Fast(Script):
        async def __call__(self, model_input: Any, stop: Any, **named: Any) -> Any:
            self.prompts.append(model_input)
            return await (Silent() if len(self.prompts) == 1 else super()).__call__(
                model_input, stop
            )

    builder = Graded([1.0, 1.0], [Timed(), Timed()])
    played(builder, Fast(ONE), termination=SPARING)

    assert builder.graded == [2, 2]


def test_a_grader_has_only_so_much_time():
    class Slow(Envs):
        async def compute_group_rewards(self, trajectory_group: Any, env_group: Any) -> Any:
            await asyncio.Event().wait()

    builder = Slow([Count()])
    termination = TerminationRewardPolicy(grader_timeout_seconds=0.01)

    with pytest.raises(TimeoutError, match=r"Slow\.compute_group_rewards"):
        played(builder, termination=termination)
    assert builder.cleanups == 1


def test_envs_are_told_to_show_their_grader_everything():
    class Shows(Chat):
        shows = False

        def set_pass_all_messages_to_grader(self, does: bool) -> None:
            self.shows = does

    inner = Shows()
    termination = TerminationRewardPolicy(pass_all_messages_to_grader=True)
    played(Envs([EnvFromMessageEnv(RENDERER, inner)]), Script("4"), termination=termination)

    assert inner.shows


# ------------------------------------------------------------------ cleanup


def test_cleanup_runs_once_after_success():
    builder = Envs([Count(), Count()])
    played(builder)

    assert builder.cleanups == 1


def test_cleanup_runs_once_after_an_error():
    builder = Envs([Count(), Failing()])
    with pytest.raises(RuntimeError, match="sandbox"):
        played(builder)

    assert builder.cleanups == 1


def test_cleanup_runs_if_the_envs_cannot_be_made():
    builder = Envs()
    with pytest.raises(IndexError):
        played(builder)

    assert builder.cleanups == 1


def test_cleanup_runs_to_its_end_when_the_group_is_cancelled_again_and_again():
    class Slow(Envs):
        async def cleanup(self) -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            await super().cleanup()

    async def cancelled() -> Slow:
        builder, policy = Slow([Count(), Count()]), Silent()
        task = asyncio.create_task(do_group_rollout(builder, policy))
        while policy.waiting < 2:  # noqa: ASYNC110 (two of them)
            await asyncio.sleep(0)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()
        assert policy.waiting == 0
        return builder

    assert run(cancelled()).cleanups == 1


def test_an_error_of_cleanup_does_not_hide_the_rollouts(caplog: pytest.LogCaptureFixture):
    class Messy(Envs):
        async def cleanup(self) -> None:
            raise OSError("could not remove the sandbox")

    assert played(Messy([Count()])).get_total_rewards() == [1.0]
    with pytest.raises(RuntimeError, match="the sandbox is gone"):
        played(Messy([Failing()]))
    assert caplog.messages == ["Messy.cleanup failed"] * 2


# ------------------------------------------------------------------- filter


def filtered(builder: Envs, **settings: Any) -> TrajectoryGroup | None:
    client = FakeService(lambda *_: (said("4"), [-0.1, -0.1], "stop")).create_sampling_client()
    work = do_group_rollout_and_filter_constant_reward(
        client.result(), builder, 8, 1.0, settings.pop("removes", False), **settings
    )
    return run(work)


def test_a_group_with_equal_rewards_is_left_out_only_where_that_is_asked_for():
    def group() -> Graded:
        return Graded([1.0, 1.0], [Count(), Count()])

    assert filtered(group()) is not None
    assert filtered(group(), removes=True) is None
    assert filtered(Graded([1.0, 2.0], [Count(), Count()]), removes=True) is not None


def test_a_group_that_fails_ends_the_run_or_is_left_out_as_the_strategy_says():
    with pytest.raises(RuntimeError, match="sandbox"):
        filtered(Envs([Failing()]))
    assert filtered(Envs([Failing()]), strategy=RetryOnFailure(max_retries=0)) is None


# ---------------------------------------------------- one request for a group


def test_the_first_turn_of_a_group_is_one_request_and_one_rendering():
    class Counts(type(RENDERER)):
        renderings = 0

        def build_generation_prompt(self, *arguments: Any, **named: Any) -> Any:
            self.renderings += 1
            return super().build_generation_prompt(*arguments, **named)

    renderer = Counts(RENDERER.tokenizer)
    service = FakeService(lambda *_: (said("4"), [-0.1, -0.1], "stop"), latency_s=0.001)
    policy = TinkerTokenCompleter(service.create_sampling_client().result(), max_tokens=8)
    group = played(Envs([EnvFromMessageEnv(renderer, Chat()) for _ in range(8)]), policy)

    assert group.get_total_rewards() == [1.0] * 8
    assert [call.arguments["num_samples"] for call in service.called("sample")] == [8]
    assert renderer.renderings == 1


def test_other_first_prompts_are_other_requests():
    service = FakeService(lambda *_: (said("4"), [-0.1, -0.1], "stop"))
    policy = TinkerTokenCompleter(service.create_sampling_client().result(), max_tokens=8)
    openings = ["one", "two", "one"]
    played(Envs([EnvFromMessageEnv(RENDERER, Chat(opening=text)) for text in openings]), policy)

    assert sorted(call.arguments["num_samples"] for call in service.called("sample")) == [1, 2]


# ---------------------------------------------------------------- executors


def test_groups_are_played_where_the_executor_says():
    async def in_threads() -> TrajectoryGroup:
        with ThreadPoolExecutor(1) as threads:
            set_rollout_executor(threads)
            return await do_group_rollout(Envs([Count(2)]), Script(ONE))

    assert run(in_threads()).get_total_rewards() == [2.0]
    assert get_rollout_executor() is None  # set inside of a run, it ends with it


def test_what_is_sent_to_an_executor_survives_pickling_and_needs_no_loop():
    rollout = GroupRollout(
        Envs([Count(2)]), Script(ONE), RetryOnFailure(), TerminationRewardPolicy()
    )

    assert pickle.loads(pickle.dumps(rollout))().get_total_rewards() == [2.0]


def test_a_completer_is_pickled_without_what_is_in_flight():
    completer = pickle.loads(pickle.dumps(TinkerTokenCompleter("a client", 8, 0.5, 512)))

    assert (completer.sampling_client, completer.max_tokens) == ("a client", 8)
    assert (completer.temperature, completer.context_window) == (0.5, 512)


@pytest.mark.slow
def test_a_group_can_be_sent_to_another_process():
    async def elsewhere() -> TrajectoryGroup:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as processes:
            set_rollout_executor(processes)
            return await do_group_rollout(Envs([Count(2)]), Script(ONE))

    assert run(elsewhere()).get_total_rewards() == [2.0]


def test_processes_made_by_fork_are_refused_with_the_reason():
    context = multiprocessing.get_context("fork")
    with (
        ProcessPoolExecutor(1, mp_context=context) as processes,
        pytest.raises(ConfigurationError, match="threads do not survive a fork"),
    ):
        set_rollout_executor(processes)
