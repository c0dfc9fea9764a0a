"""One episode: turns, limits, hooks, and what its record says."""

import asyncio
from typing import Any

import pytest
from tests.recipe.rl.players import RENDERER, Chat, Count, Script, Silent, run, sampled, shown

from mint import ModelInput
from mint.recipe.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from mint.recipe.exceptions import SamplingTurnTimeoutError
from mint.recipe.rl.message_env import EnvFromMessageEnv
from mint.recipe.rl.rollout_hooks import RolloutState
from mint.recipe.rl.rollout_limits import ParseErrorPolicy, RolloutConfig, RolloutLimits
from mint.recipe.rl.rollout_presets import agentic
from mint.recipe.rl.rollout_runner import RolloutHooks, do_single_rollout, run_rollout
from mint.recipe.rl.types import (
    Env,
    InitialObservationOverflow,
    StepResult,
    StopReason,
    Trajectory,
)
from mint.recipe.stores.timing import measuring

ONE = sampled([7, 0])
CUT = sampled([7, 7, 7], "length")


def played(policy: TokenCompleter, env: Env, **settings: Any) -> Trajectory:
    return run(run_rollout(policy, env, **settings))


def limits(**settings: Any) -> RolloutLimits:
    return RolloutLimits(**settings)


def rewards(trajectory: Trajectory) -> list[float]:
    return [transition.reward for transition in trajectory.transitions]


def last_metrics(trajectory: Trajectory) -> dict[str, float]:
    return dict(trajectory.transitions[-1].metrics)


# -------------------------------------------------------------------- turns


def test_what_was_sampled_is_recorded_as_it_was_sampled():
    policy = Script(ONE, CUT)
    trajectory = run(do_single_rollout(policy, Count(turns=2)))

    first, second = trajectory.transitions
    assert first.ac is ONE
    assert second.ac is CUT
    assert [first.ob.to_ints(), second.ob.to_ints()] == [[1], [1, 1]]
    assert [first.episode_done, second.episode_done] == [False, True]
    assert trajectory.final_ob.to_ints() == [1, 2]
    assert trajectory.stop_reason == "completed"


def test_the_env_learns_why_an_action_ended():
    env = Count(turns=2)
    played(Script(ONE, CUT), env)

    assert env.steps == [
        ([7, 0], {"stop_reason": "stop"}),
        ([7, 7, 7], {"stop_reason": "length"}),
    ]


def test_an_env_whose_step_takes_no_extra_is_called_without():
    class Older(Count):
        async def step(self, action: list[int]) -> StepResult:  # type: ignore[override]
            return await super().step(action)

    env = Older()

    assert rewards(played(Script(ONE), env)) == [1.0]
    assert env.steps == [([7, 0], None)]


def test_an_env_that_forgets_to_return_is_named():
    class Forgets(Count):
        async def step(self, action: list[int], *, extra: Any = None) -> Any:
            await super().step(action)

    with pytest.raises(TypeError, match=r"Forgets\.step returned nothing.*a StepResult"):
        played(Script(ONE), Forgets())


def test_a_policy_without_a_cap_serves_rollouts_without_a_budget():
    class Plain:
        async def __call__(self, model_input: ModelInput, stop: StopCondition) -> Any:
            return ONE

    assert rewards(played(Plain(), Count())) == [1.0]  # type: ignore[arg-type]


def test_an_end_that_the_env_names_becomes_the_stop_reason():
    env = EnvFromMessageEnv(RENDERER, Chat())
    trajectory = played(Script(sampled([9, 9], "length")), env)

    assert trajectory.stop_reason == StopReason.max_tokens
    assert rewards(trajectory) == [-0.1]


def test_a_first_prompt_that_leaves_no_room_is_one_empty_turn_with_its_reward():
    class TooLong(Count):
        async def initial_observation(self) -> Any:
            return InitialObservationOverflow(-0.1, {"stop/max_tokens": 1.0}, {"why": "long"})

    policy = Script(ONE)
    trajectory = played(policy, TooLong())

    [only] = trajectory.transitions
    assert (only.ob.length, only.ac.tokens, only.ac.logprobs) == (0, [], [])
    assert (only.reward, only.episode_done) == (-0.1, True)
    assert only.metrics == {"stop/max_tokens": 1.0}
    assert only.logs == {"why": "long"}
    assert trajectory.stop_reason == "max_tokens"
    assert policy.prompts == []


def test_the_time_of_each_part_is_measured():
    async def timed() -> dict[str, float]:
        with measuring() as times:
            await do_single_rollout(Script(ONE), Count(turns=2))
        return times.metrics()

    assert set(run(timed())) >= {
        "time/env_initial_observation", "time/policy_sample:count", "time/env_step:count",
    }  # fmt: skip


# ------------------------------------------------------------------- limits


def test_a_limit_marks_the_last_turn_done_and_nothing_is_graded():
    env = Count(turns=9)
    trajectory = played(Script(ONE), env, limits=limits(max_turns=2))

    assert rewards(trajectory) == [1.0, 1.0]
    assert [turn.episode_done for turn in trajectory.transitions] == [False, True]
    assert last_metrics(trajectory) == {"stop/max_turns": 1.0}
    assert trajectory.stop_reason == "max_turns"
    assert len(env.steps) == 2
    assert trajectory.final_ob.to_ints() == [1, 2]


def test_a_limit_replaces_the_stop_metric_that_was_there():
    class Says(Count):
        async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
            result = await super().step(action)
            result.metrics = {"stop/odd": 1.0, "kept": 2.0}
            return result

    trajectory = played(Script(ONE), Says(turns=9), limits=limits(max_turns=1))

    assert last_metrics(trajectory) == {"kept": 2.0, "stop/max_turns": 1.0}


def test_an_answer_needs_room_for_two_tokens():
    roomy = played(Script(ONE), Count(), limits=limits(max_trajectory_tokens=3))
    tight = played(Script(ONE), Count(), limits=limits(max_trajectory_tokens=2))

    assert roomy.stop_reason == "completed"
    assert tight.stop_reason == "max_tokens"
    [empty] = tight.transitions
    assert (empty.ob.length, empty.ac.tokens, empty.reward) == (0, [], 0.0)
    assert empty.metrics == {"stop/max_tokens": 1.0}


def test_the_tokens_of_all_turns_are_counted():
    trajectory = played(Script(ONE), Count(turns=9), limits=limits(max_sampled_tokens=5))

    assert [len(turn.ac.tokens) for turn in trajectory.transitions] == [2, 2]  # 1 is left: too few
    assert trajectory.stop_reason == "max_sampled_tokens"


def test_each_turn_may_sample_what_the_tightest_limit_leaves():
    policy = Script(ONE)
    bounds = limits(max_trajectory_tokens=9, max_sampled_tokens=9, max_turn_tokens=7)
    played(policy, Count(turns=3), limits=bounds)

    # context leaves 8, 7, 7; all turns together 9, 7, 5; one turn 7
    assert policy.caps == [7, 7, 5]


def test_without_a_budget_the_policy_is_not_given_one():
    policy = Script(ONE)
    played(policy, Count(), limits=limits(max_turns=3))

    assert policy.caps == [None]


def test_turns_that_are_cut_and_go_on_are_counted_on_the_last():
    trajectory = played(Script(CUT, CUT, ONE), Count(turns=3))

    assert last_metrics(trajectory) == {"num_truncations_max_turn_tokens": 2}


def test_time_that_runs_out_while_sampling_ends_the_episode_without_an_error():
    policy = Silent()
    trajectory = played(policy, Count(), limits=limits(rollout_timeout_seconds=0.01))

    assert trajectory.stop_reason == "rollout_timeout"
    assert last_metrics(trajectory) == {"stop/rollout_timeout": 1.0}
    assert policy.waiting == 0


def test_time_that_runs_out_in_the_env_keeps_the_turns_before():
    class Hangs(Count):
        async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
            if len(self.steps) == 1:
                await asyncio.Event().wait()
            return await super().step(action)

    trajectory = played(Script(ONE), Hangs(turns=2), limits=limits(rollout_timeout_seconds=0.05))

    assert rewards(trajectory) == [1.0]
    assert trajectory.stop_reason == "rollout_timeout"


def test_a_turn_that_samples_too_long_fails_and_is_no_timeout_error():
    with pytest.raises(SamplingTurnTimeoutError, match="turn 0") as failure:
        played(Silent(), Count(), limits=limits(sampling_turn_timeout_seconds=0.01))

    assert not isinstance(failure.value, TimeoutError)


def test_a_timeout_error_of_the_policys_own_is_not_taken_for_a_limit():
    class Times(TokenCompleter):
        async def __call__(self, *_: Any, **__: Any) -> TokensWithLogprobs:
            raise TimeoutError("the proxy's")

    everything = limits(rollout_timeout_seconds=60.0, sampling_turn_timeout_seconds=60.0)
    with pytest.raises(TimeoutError, match="the proxy's"):
        played(Times(), Count(), limits=everything)


def test_explicit_limits_come_before_the_configs_and_those_before_the_envs():
    def turns(**settings: Any) -> int:
        env = Count(turns=9)
        env.rollout_limits = limits(max_turns=3)  # type: ignore[attr-defined]
        return len(played(Script(ONE), env, **settings).transitions)

    config = RolloutConfig(limits=limits(max_turns=2))
    assert turns() == 3
    assert turns(config=config) == 2
    assert turns(config=config, limits=limits(max_turns=1)) == 1


def test_settings_of_a_config_reach_the_env():
    told: dict[str, Any] = {}

    class Told(Chat):
        def set_max_tool_calls(self, n: int) -> None:
            told["calls"] = n

        def set_tool_execution(self, mode: str) -> None:
            told["mode"] = mode

    env = EnvFromMessageEnv(RENDERER, Told())
    policy = ParseErrorPolicy(terminal_reward=-7.0)
    trajectory = played(Script(sampled([65])), env, config=agentic(), parse_errors=policy)

    assert told == {"calls": 30, "mode": "sequential"}
    assert rewards(trajectory) == [-7.0]


def test_a_setting_that_an_env_does_not_know_is_named(caplog: pytest.LogCaptureFixture):
    class Simple(Count): ...

    played(Script(ONE), Simple(), limits=limits(max_tool_calls=3))

    assert "Simple has no set_max_tool_calls" in caplog.text


# -------------------------------------------------------------------- hooks


class Recorder(RolloutHooks):
    """Remembers what it saw; answers each reached limit with what it is given."""

    def __init__(self, *answers: StopReason | None) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, int]] = []

    async def on_turn_begin(self, state: RolloutState) -> list[Any] | None:
        self.seen.append(("begin", state.turn_index))

    async def on_stop_reason(self, reason: StopReason, state: RolloutState) -> StopReason | None:
        self.seen.append((str(reason), state.turn_index))
        return self.answers.pop(0) if self.answers else reason

    async def on_grade(self, state: RolloutState) -> None:
        self.seen.append(("grade", state.turn_index))

    async def on_artifacts(self, state: RolloutState) -> None:
        self.seen.append(("artifacts", state.turn_index))


def test_hooks_see_an_episode_that_the_env_ends():
    hooks = Recorder()
    played(Script(ONE), Count(turns=2), hooks=hooks)

    assert hooks.seen == [("begin", 0), ("begin", 1), ("grade", 2), ("artifacts", 2)]


def test_hooks_see_an_episode_that_a_limit_ends_and_no_grade():
    hooks = Recorder()
    played(Script(ONE), Count(turns=2), hooks=hooks, limits=limits(max_turns=1))

    assert hooks.seen == [("begin", 0), ("max_turns", 1), ("artifacts", 1)]


def test_a_hook_may_name_another_reason():
    hooks = Recorder(StopReason.tool_stopped)
    trajectory = played(Script(ONE), Count(turns=9), hooks=hooks, limits=limits(max_turns=1))

    assert trajectory.stop_reason == "tool_stopped"
    assert last_metrics(trajectory) == {"stop/tool_stopped": 1.0}


def test_a_hook_may_lift_a_limit_and_is_not_asked_again():
    hooks = Recorder(None)
    trajectory = played(Script(ONE), Count(turns=4), hooks=hooks, limits=limits(max_turns=1))

    assert trajectory.stop_reason == "completed"
    assert [name for name, _ in hooks.seen].count("max_turns") == 1


def test_a_lifted_limit_on_tokens_no_longer_bounds_a_turn():
    policy = Script(ONE)
    bounds = limits(max_trajectory_tokens=2, max_sampled_tokens=50)
    played(policy, Count(), hooks=Recorder(None), limits=bounds)

    assert policy.caps == [50]


def test_a_hook_cannot_lift_time_that_ran_out_within_a_turn():
    hooks = Recorder(None)
    bounds = limits(rollout_timeout_seconds=0.01)
    trajectory = played(Silent(), Count(), hooks=hooks, limits=bounds)

    assert trajectory.stop_reason == "rollout_timeout"
    assert hooks.seen[-1] == ("artifacts", 1)  # the empty turn that carries the metric


def test_an_object_with_one_of_the_hooks_will_do():
    class Only:
        states: tuple[RolloutState, ...] = ()

        async def on_artifacts(self, state: RolloutState) -> None:
            self.states = (state,)

    hooks = Only()
    played(Script(CUT, ONE), Count(turns=2), hooks=hooks)

    [state] = hooks.states
    assert (state.turn_index, state.sampled_tokens, state.num_length_truncations) == (2, 5, 1)
    assert state.observation_tokens == 2
    assert len(state.transitions) == 2


def test_messages_of_a_hook_are_shown_to_the_model():
    class Hurries:
        async def on_turn_begin(self, state: RolloutState) -> Any:
            return [{"role": "user", "content": "hurry"}] if state.turn_index == 0 else None

    class Open(Chat):
        async def add_messages(self, messages: list[Any]) -> list[Any]:
            self.history += messages
            return self.history

    policy = Script("4")
    played(policy, EnvFromMessageEnv(RENDERER, Open()), hooks=Hurries())

    assert "hurry" in shown(policy.prompts[0])


def test_messages_for_an_env_that_takes_none_are_refused():
    class Hurries:
        async def on_turn_begin(self, state: RolloutState) -> Any:
            return [{"role": "user", "content": "hurry"}]

    with pytest.raises(TypeError, match="Count has no"):
        played(Script(ONE), Count(), hooks=Hurries())
