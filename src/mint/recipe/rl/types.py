"""The values of reinforcement learning: environments, episodes, groups, data sets.

Letters: `P` groups of a batch, `G` members of a group, `T` tokens.

An `Env` plays one episode and is never reused. A group is G attempts at one problem, or G players
of one game: the advantage's baseline is the group's mean, so the builder decides what "the same
problem" means.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias, TypedDict

import chz

from mint import ModelInput
from mint.recipe.completers import StopCondition as StopCondition
from mint.recipe.completers import TokensWithLogprobs

Action: TypeAlias = list[int]
Observation: TypeAlias = ModelInput
Logprobs: TypeAlias = list[float]
Metrics: TypeAlias = dict[str, float | int]
"""Numbers to be averaged over those that report them."""
Logs: TypeAlias = dict[str, str | int | float]
"""What a person may want to read about one step; never averaged."""

STOP_METRIC_PREFIX = "stop/"
"""A terminal step carries metrics["stop/<reason>"] = 1.0, for one reason at most."""
ADAPTER_TIMEOUT_METRIC_KEY = "adapter_timeout"
ADAPTER_ERROR_METRIC_KEY = "adapter_error"
"""A grader's metrics: 1 for an episode that it could not score, in time or at all, and gave a reward
that was set for this case; 0 otherwise."""
PARSE_ERROR_MASKED_METRIC_KEY = "parse_error_masked"
"""A transition with this metric is kept as context and not trained on."""


class StopReason(StrEnum):
    """Why an episode ended."""

    completed = "completed"
    tool_stopped = "tool_stopped"
    max_turns = "max_turns"
    max_tokens = "max_tokens"
    max_sampled_tokens = "max_sampled_tokens"
    max_tool_calls = "max_tool_calls"
    context_overflow = "context_overflow"
    parse_error = "parse_error"
    rollout_timeout = "rollout_timeout"


class ActionExtra(TypedDict, total=False):
    """What an env may want to know of an action besides its tokens."""

    stop_reason: Literal["stop", "length"]


@dataclass
class StepResult:
    """An env's answer to one action."""

    reward: float
    episode_done: bool
    next_observation: Observation
    next_stop_condition: StopCondition
    metrics: Metrics = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)


@dataclass
class Transition:
    """One turn: what was shown, what was said, what it earned."""

    ob: Observation
    ac: TokensWithLogprobs
    reward: float
    episode_done: bool
    metrics: Metrics = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)


@dataclass(frozen=True)
class InitialObservationOverflow:
    """In place of a first observation: it leaves no room to answer in.

    The episode ends before it began. Its reward counts in the group's mean, and it gives no datum.
    """

    reward: float
    metrics: Metrics = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)


@dataclass(frozen=True)
class Trajectory:
    """One episode, played to its end."""

    transitions: list[Transition]
    final_ob: Observation
    """What would have been shown next; empty where nothing would have."""
    stop_reason: str | None = None
    """A `StopReason`, or an env's own word for its end."""


@dataclass(frozen=True)
class RolloutError:
    """One attempt at an episode that failed and was replaced or left out."""

    error_type: str
    error_message: str


@dataclass
class TrajectoryGroup:
    """The episodes of one group, in the order of its envs."""

    trajectories_G: list[Trajectory]
    final_rewards_G: list[float]
    """From `compute_group_rewards`; the steps' own rewards come on top."""
    metrics_G: list[Metrics]
    rollout_errors: list[RolloutError] = field(default_factory=list)

    def get_total_rewards(self) -> list[float]:
        """Per member, the sum of its steps' rewards and its final reward."""
        return [
            sum(transition.reward for transition in trajectory.transitions) + final
            for trajectory, final in zip(self.trajectories_G, self.final_rewards_G, strict=True)
        ]


class Env(ABC):
    """One episode of an environment that speaks tokens. Used once."""

    @abstractmethod
    async def initial_observation(
        self,
    ) -> tuple[Observation, StopCondition] | InitialObservationOverflow:
        """The first prompt, and what ends the answer to it."""

    @abstractmethod
    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """What follows from the sampled tokens.

        An env may leave `extra` out of its signature; it is then called without.
        """


class EnvGroupBuilder(ABC):
    """Makes the envs of one group, and scores their episodes together.

    Cheap to make and picklable, unless it holds a live client. Usually subclassed as a frozen
    dataclass.
    """

    retryable: bool = True
    """False where members depend on each other: one that fails then fails the group."""

    @abstractmethod
    async def make_envs(self) -> Sequence[Env]:
        """Fresh envs, one per member. May be called again, to replace a member that failed."""

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """A final reward and metrics per member, once all have played.

        Args:
            trajectory_group: the episodes, in the order of the envs.
            env_group: the envs that played them.
        """
        return [(0.0, {}) for _ in trajectory_group]

    async def cleanup(self) -> None:
        """Let go of what `make_envs` took. Called once per rollout of the group, however it ends."""
        return

    def logging_tags(self) -> list[str]:
        """Names under which this group's numbers are gathered, besides `all`."""
        return []


class RLDataset(ABC):
    """Batches of groups."""

    @abstractmethod
    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """The groups of batch `index`; the same ones whenever asked, or a resume would differ."""

    @abstractmethod
    def __len__(self) -> int:
        """How many batches there are."""

    def bind(self, training_client: Any) -> None:
        """Told by a run, before its first batch, whose weights it trains; does nothing by itself.

        For environments that want to know the model: its tokenizer, its family. Called in a thread,
        since a tokenizer may have to be fetched. A data set made of others tells them.
        """
        return


@chz.chz
class RLDatasetBuilder:
    """Makes the data set of a run, and one to test on. Subclasses are chz classes too."""

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        raise NotImplementedError(
            f"{type(self).__name__} has no `async def __call__(self)`. It returns the training "
            "data set, and a test set or None."
        )
