"""Groups: make the envs, play them all at once, score them together, let go of them.

builder --make_envs--> envs --strategy--> trajectories --compute_group_rewards--> group
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mint.recipe.completers import TinkerTokenCompleter, TokenCompleter
from mint.recipe.rl.advantages import has_equal_rewards
from mint.recipe.rl.class_hints import hand_on
from mint.recipe.rl.group_checks import graded, require_envs, require_numbers
from mint.recipe.rl.prompts import sharing_prompts
from mint.recipe.rl.rollout_executor import get_rollout_executor as get_rollout_executor
from mint.recipe.rl.rollout_executor import run_in
from mint.recipe.rl.rollout_executor import set_rollout_executor as set_rollout_executor
from mint.recipe.rl.rollout_limits import TerminationRewardPolicy
from mint.recipe.rl.rollout_runner import do_single_rollout as do_single_rollout
from mint.recipe.rl.rollout_runner import run_rollout as run_rollout
from mint.recipe.rl.rollout_strategy import FailFast, Played, RolloutStrategy
from mint.recipe.rl.stray_cancellation import strays_as_errors
from mint.recipe.rl.types import (
    Env,
    EnvGroupBuilder,
    Metrics,
    StopReason,
    Trajectory,
    TrajectoryGroup,
)
from mint.recipe.stores.timing import span
from mint.recipe.tasks import limited

_log = logging.getLogger("mint.recipe.rl.rollouts")


async def do_group_rollout(
    env_group_builder: EnvGroupBuilder,
    policy: TokenCompleter,
    strategy: RolloutStrategy | None = None,
    termination: TerminationRewardPolicy | None = None,
) -> TrajectoryGroup:
    """Play one group and score it. The builder's `cleanup` runs once, however this ends.

    With a rollout executor set, all of it happens there.

    Args:
        strategy: what becomes of the group when a member fails. None: FailFast.
        termination: what the reward of an episode that a limit ended is worth. None: all of it.

    Raises:
        TimeoutError: `compute_group_rewards` took longer than `grader_timeout_seconds`.
        Exception: of the builder, an env or the policy, as the strategy has it.
    """
    rollout = GroupRollout(
        env_group_builder, policy, strategy or FailFast(), termination or TerminationRewardPolicy()
    )
    executor = get_rollout_executor()
    if executor is None:
        return await rollout.played()
    with strays_as_errors("the rollout executor"):
        return await run_in(executor, rollout)


async def do_group_rollout_and_filter_constant_reward(
    sampling_client: Any,
    env_group_builder: EnvGroupBuilder,
    max_tokens: int,
    temperature: float,
    do_remove_constant_reward_groups: bool,
    enable_logging: bool = True,
    strategy: RolloutStrategy | None = None,
    termination: TerminationRewardPolicy | None = None,
) -> TrajectoryGroup | None:
    """Play one group with a sampling client.

    Args:
        enable_logging: say why a group is left out.

    Returns:
        None if the group failed under a strategy that lets groups fail, or if its members all
        have the same reward and such groups are not wanted.
    """
    policy = TinkerTokenCompleter(sampling_client, max_tokens, temperature)
    strategy = strategy or FailFast()
    name = type(env_group_builder).__name__
    try:
        group = await do_group_rollout(env_group_builder, policy, strategy, termination)
    except Exception as error:
        if not strategy.catches_group_errors:
            raise
        if enable_logging:
            _log.warning("%s: group skipped (%s: %s)", name, type(error).__name__, error)
        return None
    if do_remove_constant_reward_groups and has_equal_rewards(group):
        if enable_logging:
            _log.info("%s: group left out, for all its rewards are equal", name)
        return None
    return group


@dataclass(frozen=True)
class GroupRollout:
    """One group to be played, here or wherever it is sent."""

    builder: EnvGroupBuilder
    policy: TokenCompleter
    strategy: RolloutStrategy
    termination: TerminationRewardPolicy

    def __call__(self) -> TrajectoryGroup:
        """Play it in a thread or process without an event loop."""
        return asyncio.run(self.played())

    async def played(self) -> TrajectoryGroup:
        async with _cleaned_up(self.builder):
            with strays_as_errors(type(self.builder).__name__):
                return await self._played()

    async def _played(self) -> TrajectoryGroup:
        with sharing_prompts():
            envs = list(await self.builder.make_envs())
            require_envs(self.builder, envs)
            if self.termination.pass_all_messages_to_grader:
                _show_all_messages_to_grader(envs)
            played = await self.strategy.play_group(self.builder, envs, self._episode)
        require_numbers(played.envs_G, played.trajectories_G)
        with span("compute_group_rewards"):
            rewards_G = await self._graded(played)
        return self._clamped(
            TrajectoryGroup(
                trajectories_G=played.trajectories_G,
                final_rewards_G=[reward for reward, _ in rewards_G],
                metrics_G=[dict(metrics) for _, metrics in rewards_G],
                rollout_errors=played.errors,
            )
        )

    async def _episode(self, env: Env) -> Trajectory:
        with strays_as_errors(type(env).__name__):
            return await do_single_rollout(self.policy, env)

    async def _graded(self, played: Played) -> Sequence[tuple[float, Metrics]]:
        if self._needs_no_grade(played.trajectories_G):
            return [(0.0, {}) for _ in played.trajectories_G]
        timeout_s = self.termination.grader_timeout_seconds

        def too_late() -> TimeoutError:
            return TimeoutError(
                f"{type(self.builder).__name__}.compute_group_rewards took longer than "
                f"grader_timeout_seconds={timeout_s}"
            )

        async with limited(asyncio.timeout(timeout_s), too_late):
            rewards_G = await self.builder.compute_group_rewards(
                played.trajectories_G, played.envs_G
            )
        return graded(self.builder, rewards_G, len(played.trajectories_G))

    def _needs_no_grade(self, trajectories_G: Sequence[Trajectory]) -> bool:
        """Whether grading would be for nothing: all ran out of time, and that earns nothing."""
        return (
            self.termination.skip_grading_on_timeout
            and self.termination.zero_reward_on_limit
            and StopReason.rollout_timeout in self.termination.limit_stop_reasons
            and all(one.stop_reason == StopReason.rollout_timeout for one in trajectories_G)
        )

    def _clamped(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """The group, with totals of at most 0 where a limit ended the episode."""
        if not self.termination.zero_reward_on_limit:
            return group
        for member, total in enumerate(group.get_total_rewards()):
            if group.trajectories_G[member].stop_reason in self.termination.limit_stop_reasons:
                group.final_rewards_G[member] -= max(total, 0.0)
                group.metrics_G[member]["zero_reward_on_limit"] = 1.0
        return group


def _show_all_messages_to_grader(envs: Sequence[Env]) -> None:
    for env in envs:
        hand_on(_log, env, "set_pass_all_messages_to_grader", True, "it is graded as it is")


@asynccontextmanager
async def _cleaned_up(builder: EnvGroupBuilder) -> AsyncIterator[None]:
    """Calls the builder's `cleanup` at the end, and waits for it even when cancelled."""
    try:
        yield
    finally:
        cleaning = asyncio.create_task(_cleanup(builder))
        cancelled = None
        while not cleaning.done():
            try:
                await asyncio.wait([cleaning])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled:
            raise cancelled


async def _cleanup(builder: EnvGroupBuilder) -> None:
    try:
        await builder.cleanup()
    except Exception:  # it must not hide what the rollout came to
        _log.exception("%s.cleanup failed", type(builder).__name__)
