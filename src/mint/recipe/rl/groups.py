"""One group, from its builder to its datums, as one object.

builder -> (rollout) trajectory_group or error -> (assembly) advantages_G, data. Nothing of a group
is kept in a list of its own beside others', so tags, rewards and datums cannot come apart.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mint import Datum
from mint.recipe.completers import TokenCompleter
from mint.recipe.rl.advantages import group_advantages, has_equal_rewards
from mint.recipe.rl.data_processing import assemble_training_data
from mint.recipe.rl.rollout_limits import TerminationRewardPolicy
from mint.recipe.rl.rollout_strategy import RolloutStrategy
from mint.recipe.rl.rollouts import do_group_rollout
from mint.recipe.rl.types import EnvGroupBuilder, TrajectoryGroup

_log = logging.getLogger("mint.recipe.rl.train")


@dataclass
class Group:
    """G attempts at one problem."""

    builder: EnvGroupBuilder
    index: int
    """Its place in the batch; in the asynchronous schedule, in the walk through the data set."""
    sampler_step: int = 0
    """The step that began with the weights it is sampled from."""

    trajectory_group: TrajectoryGroup | None = None
    """None until it has been played, and where that failed."""
    error: Exception | None = None
    """Why it is skipped."""
    seconds: float = 0.0
    """What its rollout took."""

    advantages_G: np.ndarray | None = None
    """Reward less the group's mean. None: it was not assembled for training."""
    data: list[Datum] = field(default_factory=list)
    datums_G: list[int] | None = None
    """How many of `data` come from each member."""

    def __post_init__(self) -> None:
        self.tags: Sequence[str] = list(self.builder.logging_tags())

    async def play(
        self,
        policy: TokenCompleter,
        strategy: RolloutStrategy,
        termination: TerminationRewardPolicy | None = None,
    ) -> "Group":
        """Roll every member out.

        Raises:
            Exception: a rollout's own, where the strategy lets it end the run; under any other
                strategy it becomes `error`, and the group is skipped.
        """
        began = time.perf_counter()
        try:
            self.trajectory_group = await do_group_rollout(
                self.builder, policy, strategy, termination
            )
        except Exception as error:
            if not strategy.catches_group_errors:
                raise
            self.error = error
            _log.warning(
                "Group %d (%s) is skipped: %s: %s",
                self.index, ", ".join(self.tags) or type(self.builder).__name__,
                type(error).__name__, error,
            )  # fmt: skip
        self.seconds = time.perf_counter() - began
        return self

    def assemble(self, *, drop_constant: bool, include_provenance: bool) -> "Group":
        """Fill in advantages and datums, if it has been played.

        Args:
            drop_constant: leave it out if its members all have the same reward: there is nothing
                to learn from it.

        Raises:
            DataValidationError: a reward is not finite.
        """
        played = self.trajectory_group
        if played is None:
            return self
        advantages_G = group_advantages(played, self.index)
        if drop_constant and has_equal_rewards(played):
            return self
        self.advantages_G = advantages_G
        self.data, origins = assemble_training_data(
            [played], [self.advantages_G], include_provenance
        )
        counts = Counter(origin["traj_idx"] for origin in origins)
        self.datums_G = [counts[member] for member in range(len(played.trajectories_G))]
        return self
