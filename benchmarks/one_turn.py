"""An environment whose rewards are settled beforehand, for benchmarks of what surrounds it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mint import ModelInput
from mint.recipe.rl.types import Env, EnvGroupBuilder, StepResult


@dataclass(frozen=True)
class Asked(Env):
    """One question, whatever the answer; nothing ends it early."""

    prompt: ModelInput
    reward: float

    async def initial_observation(self) -> tuple[ModelInput, list[int]]:
        return self.prompt, []

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        return StepResult(self.reward, True, ModelInput.empty(), [])


@dataclass(frozen=True)
class AskedTogether(EnvGroupBuilder):
    """A group: one question, asked once for each reward."""

    prompt: ModelInput
    rewards: Sequence[float]

    async def make_envs(self) -> Sequence[Env]:
        return [Asked(self.prompt, reward) for reward in self.rewards]
