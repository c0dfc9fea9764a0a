"""One episode: a policy and an env take turns until one of them, or a limit, ends it.

What was sampled is recorded as it was sampled: tokens and logprobs go into the transition untouched.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from mint import ModelInput
from mint.recipe.completers import TokenCompleter, TokensWithLogprobs
from mint.recipe.exceptions import SamplingTurnTimeoutError
from mint.recipe.rl.class_hints import hand_on
from mint.recipe.rl.rollout_hooks import RolloutHooks as RolloutHooks
from mint.recipe.rl.rollout_hooks import RolloutState
from mint.recipe.rl.rollout_limits import (
    ParseErrorPolicy,
    RolloutConfig,
    RolloutLimits,
    token_limits,
    turn_budget,
    turn_limits,
)
from mint.recipe.rl.types import (
    STOP_METRIC_PREFIX,
    Env,
    InitialObservationOverflow,
    Metrics,
    StepResult,
    StopReason,
    Trajectory,
    Transition,
)
from mint.recipe.stores.timing import span
from mint.recipe.tasks import limited

_log = logging.getLogger("mint.recipe.rl.rollout_runner")

TRUNCATIONS_METRIC_KEY = "num_truncations_max_turn_tokens"
"""On the last transition: how many turns were cut at their length and went on all the same."""

NO_LIMITS = RolloutLimits()

LimitsReached = Callable[[RolloutLimits, RolloutState], Iterable[StopReason]]


async def run_rollout(
    policy: TokenCompleter,
    env: Env,
    *,
    limits: RolloutLimits | None = None,
    hooks: Any = None,
    parse_errors: ParseErrorPolicy | None = None,
    config: RolloutConfig | None = None,
) -> Trajectory:
    """Play `env` to its end.

    Args:
        limits: before `config.limits`, before the env's own `rollout_limits`.
        hooks: an object with some of the methods of RolloutHooks.
        parse_errors: before `config.parse_errors`; told to the env.

    Raises:
        SamplingTurnTimeoutError: one call of the policy took too long.
    """
    if limits is None:
        limits = config.limits if config else getattr(env, "rollout_limits", None)
    if parse_errors is None and config is not None:
        parse_errors = config.parse_errors
    limits = limits or NO_LIMITS
    if parse_errors is not None:
        hand_on(_log, env, "set_parse_error_policy", parse_errors)
    if limits.max_tool_calls is not None:
        hand_on(_log, env, "set_max_tool_calls", limits.max_tool_calls)
    if config is not None and config.tool_execution != "parallel":
        hand_on(_log, env, "set_tool_execution", config.tool_execution)
    return await _Episode(policy, env, limits, hooks).played()


async def do_single_rollout(policy: TokenCompleter, env: Env) -> Trajectory:
    """Play `env` to its end, under its own limits."""
    return await run_rollout(policy, env)


class _TimeIsUp(Exception):
    """`rollout_timeout_seconds` has passed."""


@dataclass
class _Episode:
    policy: TokenCompleter
    env: Env
    limits: RolloutLimits
    hooks: Any
    transitions: list[Transition] = field(default_factory=list)
    sampled_tokens: int = 0
    cut_turns: int = 0

    async def played(self) -> Trajectory:
        self.ob, self.stop = ModelInput.empty(), []
        self.began = asyncio.get_running_loop().time()
        self.lifted: set[StopReason] = set()  # by a hook
        try:
            trajectory = await self._turns()
        except _TimeIsUp:
            reason = await self._hook("on_stop_reason", StopReason.rollout_timeout)
            trajectory = self._stopped(reason or StopReason.rollout_timeout)
        await self._hook("on_artifacts")
        return trajectory

    async def _turns(self) -> Trajectory:
        async with self._in_time():
            with span("env_initial_observation"):
                first = await self.env.initial_observation()
        if isinstance(first, InitialObservationOverflow):
            return self._overflowed(first)
        self.ob, self.stop = first
        takes_extra = _takes_extra(self.env)
        while True:
            if (reason := await self._begin_turn()) is not None:
                return self._stopped(reason)
            async with self._in_time():
                action = await self._sample()
                with span("env_step"):
                    result = await self._step(action, takes_extra)
            self._record(action, result)
            if result.episode_done:
                await self._hook("on_grade")
                return self._finished()

    # ------------------------------------------------------------- one turn

    async def _begin_turn(self) -> StopReason | None:
        """Settle whether there is another turn; the reason if there is none."""
        if (reason := await self._end_by(turn_limits)) is not None:
            return reason
        messages = await self._hook("on_turn_begin")
        if messages:
            self.ob = await self._injected(messages)
        return await self._end_by(token_limits)

    async def _end_by(self, limits: LimitsReached) -> StopReason | None:
        """What reached limits come to once the hook has been asked; None to go on."""
        if self.limits is NO_LIMITS:
            return None
        for reason in limits(self.limits, self.state()):
            if reason in self.lifted:
                continue
            if not hasattr(self.hooks, "on_stop_reason"):
                return reason
            settled = await self._hook("on_stop_reason", reason)
            if settled is not None:
                return settled
            self.lifted.add(reason)
        return None

    async def _sample(self) -> TokensWithLogprobs:
        named = {}
        if self.limits is not NO_LIMITS:
            budget = turn_budget(self.limits, self.state(), self.lifted)
            named = {} if budget is None else {"max_tokens": budget}
        timeout_s = self.limits.sampling_turn_timeout_seconds

        def too_late() -> SamplingTurnTimeoutError:
            return SamplingTurnTimeoutError(
                f"turn {len(self.transitions)} was sampled for longer than "
                f"sampling_turn_timeout_seconds={timeout_s}, after a prompt of {self.ob.length} "
                "tokens."
            )

        with span("policy_sample"):
            async with limited(asyncio.timeout(timeout_s), too_late):
                return await self.policy(self.ob, self.stop, **named)

    async def _step(self, action: TokensWithLogprobs, takes_extra: bool) -> StepResult:
        if takes_extra:
            step = self.env.step(action.tokens, extra={"stop_reason": action.stop_reason})
        else:
            step = self.env.step(action.tokens)
        result = await step
        if result is None:
            raise TypeError(
                f"{type(self.env).__name__}.step returned nothing. It has to return a StepResult."
            )
        return result

    def _record(self, action: TokensWithLogprobs, result: StepResult) -> None:
        self.sampled_tokens += len(action.tokens)
        self.cut_turns += action.stop_reason == "length" and not result.episode_done
        self.transitions.append(
            Transition(
                ob=self.ob,
                ac=action,
                reward=result.reward,
                episode_done=result.episode_done,
                metrics=dict(result.metrics),
                logs=dict(result.logs),
            )
        )
        self.ob, self.stop = result.next_observation, result.next_stop_condition

    async def _injected(self, messages: list[Any]) -> ModelInput:
        inject = getattr(self.env, "inject_messages", None)
        if inject is None:
            raise TypeError(
                f"on_turn_begin gave messages, but {type(self.env).__name__} has no "
                "`async def inject_messages(self, messages)` that returns the prompt with them."
            )
        return await inject(messages)

    # ------------------------------------------------------------- its end

    def _finished(self) -> Trajectory:
        """The env has ended the episode."""
        last = self.transitions[-1]
        self._count_truncations(last.metrics)
        return Trajectory(self.transitions, self.ob, _reason_in(last.metrics) or "completed")

    def _stopped(self, reason: StopReason) -> Trajectory:
        """A limit has: the last transition says so, and nothing was graded."""
        if not self.transitions:
            self.transitions.append(_empty_transition(0.0, {}))
        last = self.transitions[-1]
        metrics = {k: v for k, v in last.metrics.items() if not k.startswith(STOP_METRIC_PREFIX)}
        metrics[f"{STOP_METRIC_PREFIX}{reason}"] = 1.0
        self._count_truncations(metrics)
        self.transitions[-1] = replace(last, episode_done=True, metrics=metrics)
        return Trajectory(self.transitions, self.ob, str(reason))

    def _overflowed(self, first: InitialObservationOverflow) -> Trajectory:
        """The episode is over before its first turn: a reward, and nothing to train on."""
        self.transitions.append(_empty_transition(first.reward, first.metrics, first.logs))
        reason = _reason_in(first.metrics) or StopReason.max_tokens
        return Trajectory(self.transitions, ModelInput.empty(), str(reason))

    def _count_truncations(self, metrics: Metrics) -> None:
        if self.cut_turns:
            metrics[TRUNCATIONS_METRIC_KEY] = self.cut_turns

    # --------------------------------------------------------------- within

    def state(self) -> RolloutState:
        return RolloutState(
            turn_index=len(self.transitions),
            observation_tokens=self.ob.length,
            sampled_tokens=self.sampled_tokens,
            num_length_truncations=self.cut_turns,
            elapsed_seconds=self.elapsed_seconds(),
            transitions=list(self.transitions),
        )

    def elapsed_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self.began

    async def _hook(self, name: str, *arguments: Any) -> Any:
        """What a hook answers, who is told the state too; None where there is no such hook."""
        method = getattr(self.hooks, name, None)
        return None if method is None else await method(*arguments, self.state())

    def _in_time(self) -> AbstractAsyncContextManager[None]:
        """Ends what is within when the episode's time is up."""
        timeout_s = self.limits.rollout_timeout_seconds
        if timeout_s is None or StopReason.rollout_timeout in self.lifted:
            return nullcontext()
        return limited(asyncio.timeout_at(self.began + timeout_s), _TimeIsUp)


def _empty_transition(reward: float, metrics: Metrics, logs: Any = None) -> Transition:
    nothing = TokensWithLogprobs([], [], "stop")
    return Transition(ModelInput.empty(), nothing, reward, True, dict(metrics), dict(logs or {}))


def _reason_in(metrics: Metrics) -> str | None:
    """The end that a terminal step's metrics name, if they name one."""
    for name in metrics:
        if name.startswith(STOP_METRIC_PREFIX):
            return name.removeprefix(STOP_METRIC_PREFIX)
    return None


def _takes_extra(env: Env) -> bool:
    """Whether `env.step` knows of `extra`; envs older than it do not."""
    return _has_extra(getattr(env.step, "__func__", env.step))


@lru_cache(maxsize=256)  # a signature takes 30 µs to read, and a batch has thousands of envs
def _has_extra(step: Callable[..., Any]) -> bool:
    parameters = inspect.signature(step).parameters
    return "extra" in parameters or any(
        one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()
    )
