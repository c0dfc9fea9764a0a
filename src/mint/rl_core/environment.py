"""An adapter as an environment of the recipes: one prompt, one response, scored with its group.

Letters: `G` members of a group.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from mint import ModelInput
from mint.recipe.rl.class_hints import say_once
from mint.recipe.rl.types import (
    ADAPTER_ERROR_METRIC_KEY,
    ADAPTER_TIMEOUT_METRIC_KEY,
    STOP_METRIC_PREFIX,
    Action,
    ActionExtra,
    Env,
    EnvGroupBuilder,
    Logs,
    Metrics,
    StepResult,
    StopCondition,
    StopReason,
    Trajectory,
)
from mint.rl_core.adapter import RLAdapter
from mint.rl_core.context import ScoringContext
from mint.rl_core.reward import FailedReward, Reward, metrics_and_logs
from mint.rl_core.scoring import score_group

_log = logging.getLogger("mint.rl_core")

LONG_S = 60.0
"""How long a group waits for its rewards before somebody is told."""


class AdapterEnv(Env):
    """Sends a prompt, keeps the response, and is done. Its group scores it."""

    def __init__(self, adapter: RLAdapter, prompt: ModelInput, stop: StopCondition) -> None:
        """
        Args:
            stop: what ends the response; the token that does is part of it.
        """
        self.adapter = adapter
        self.prompt = prompt
        self.stop: StopCondition = stop
        self.response: ModelInput | None = None
        """What was sampled; None until then, and for an episode that a limit ended before."""
        self.stop_reason: Literal["stop", "length"] | None = None

    async def initial_observation(self) -> tuple[ModelInput, StopCondition]:
        return self.prompt, self.stop

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        self.response = ModelInput.from_ints(action)
        self.stop_reason = (extra or {}).get("stop_reason")
        is_cut = self.stop_reason == "length"  # scored all the same: half an answer may be right
        return StepResult(
            reward=0.0,
            episode_done=True,
            next_observation=ModelInput.empty(),
            next_stop_condition=self.stop,
            metrics={f"{STOP_METRIC_PREFIX}{StopReason.max_tokens}": 1.0} if is_cut else {},
        )


@dataclass(frozen=True)
class AdapterGroupBuilder(EnvGroupBuilder):
    """Responses to one prompt, scored by one call of the adapter's `score_batch`.

    Scoring begins when the group's own responses are there, so a slow reward runs beside the sampling
    of other groups.
    """

    adapter: RLAdapter
    prompt: ModelInput
    stop: StopCondition
    group_size: int
    tags: tuple[str, ...] = ()
    """Names under which the group's numbers are gathered."""

    async def make_envs(self) -> Sequence[AdapterEnv]:
        return [AdapterEnv(self.adapter, self.prompt, self.stop) for _ in range(self.group_size)]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """Score those that responded; an episode without a response gets 0.

        Texts in a reward's metadata, and why a scoring failed, go to the logs of its episode's turn.

        Raises:
            Exception: the adapter's own, where it sets no `error_score`.
        """
        rewards = await self._scored(env_group)
        graded: list[tuple[float, Metrics]] = []
        for episode, env in zip(trajectory_group, env_group, strict=True):
            reward = rewards.get(id(env))
            metrics, logs = ({}, {}) if reward is None else _told(reward)
            if episode.transitions:
                episode.transitions[-1].logs.update(logs)
            graded.append((0.0 if reward is None else reward.score, metrics))
        return graded

    async def _scored(self, env_group: Sequence[Env]) -> dict[int, Reward]:
        """Rewards by the id of their env."""
        asked = [
            (env, response)
            for env in env_group
            if isinstance(env, AdapterEnv) and (response := env.response) is not None
        ]
        if not asked:
            return {}
        with _named_if_it_lasts(self.adapter):
            rewards_G = await score_group(
                self.adapter,
                [(env.prompt, response) for env, response in asked],
                [ScoringContext(stop_reason=env.stop_reason) for env, _ in asked],
            )
        return {id(env): reward for (env, _), reward in zip(asked, rewards_G, strict=True)}

    def logging_tags(self) -> list[str]:
        return list(self.tags)


@contextmanager
def _named_if_it_lasts(adapter: RLAdapter) -> Iterator[None]:
    """Says once of an adapter's class that a run waits for it: without a time limit it may for ever."""
    if adapter.timeout_s is not None:
        yield
        return
    owner, method = adapter.speaks_for()
    hint = asyncio.get_running_loop().call_later(
        LONG_S, say_once, _log, owner,
        "a group waits for %s.%s for %.0f s now. Set timeout_s (seconds of one scoring) if it should "
        "not wait for ever.", owner.__name__, method, LONG_S,
    )  # fmt: skip
    try:
        yield
    finally:
        hint.cancel()


def _told(reward: Reward) -> tuple[Metrics, Logs]:
    """What is averaged, and what is only shown. Every scored episode says whether scoring failed, so
    that the mean is a rate over all."""
    metrics, logs = metrics_and_logs(reward)
    kind = None
    if isinstance(reward, FailedReward):
        kind = reward.kind
        metrics, logs = {}, {**logs, **metrics}  # about the failure: nothing to average
    return {
        **metrics,
        ADAPTER_TIMEOUT_METRIC_KEY: float(kind == "timeout"),
        ADAPTER_ERROR_METRIC_KEY: float(kind == "error"),
    }, logs
