"""Advantages: how much better an episode did than its group.

Letters: `P` groups of a batch, `G` members of a group.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.types import TrajectoryGroup

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("mint.recipe.rl.advantages")


def advantages_of(trajectory_groups_P: Sequence[TrajectoryGroup]) -> list[NDArray[np.float64]]:
    """Per group, each member's total reward minus the group's mean.

        A_i = R_i - mean(R)

    Over the members that are there, so a group that lost some to failures is still centred. Not
    divided by the standard deviation, which would give a nearly solved problem the weight of an
    open one, and not normalised by length (Liu et al. 2025, arXiv:2503.20783). A group of one gives 0.

    Returns:
        One array `[G]` per group.

    Raises:
        DataValidationError: a reward is not finite; names group and member.
    """
    return [group_advantages(group, p) for p, group in enumerate(trajectory_groups_P)]


def group_advantages(group: TrajectoryGroup, index: int) -> NDArray[np.float64]:
    """`advantages_of` for one group, `[G]`.

    Args:
        index: what errors call it.
    """
    return _centred(_finite_rewards(group, index))


def compute_advantages(trajectory_groups_P: Sequence[TrajectoryGroup]) -> "list[torch.Tensor]":
    """`advantages_of` as float32 tensors. Imports torch."""
    import torch

    return [
        torch.tensor(advantages_G, dtype=torch.float32)
        for advantages_G in advantages_of(trajectory_groups_P)
    ]


def has_equal_rewards(group: TrajectoryGroup) -> bool:
    """Whether every member got the same total reward, so that the group has no gradient."""
    return len(set(group.get_total_rewards())) <= 1


def remove_constant_reward_groups(
    trajectory_groups_P: Sequence[TrajectoryGroup],
) -> list[TrajectoryGroup]:
    """The groups whose members differ in total reward, in their order.

    If none does, the first group alone, so that whoever trains on the result has something to
    train on; this is logged. Whoever has more to keep together with a group (its builder, its
    tags) filters by `has_equal_rewards` instead.
    """
    mixed = [group for group in trajectory_groups_P if not has_equal_rewards(group)]
    if mixed or not trajectory_groups_P:
        return mixed
    logger.warning(
        "in all %d groups the members' rewards are equal, so nothing can be learnt from them; the "
        "first group is kept",
        len(trajectory_groups_P),
    )
    return [trajectory_groups_P[0]]


def _centred(rewards_G: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(rewards_G) == 0 or (rewards_G == rewards_G[0]).all():
        return np.zeros_like(rewards_G)  # the mean of equal floats may differ from them by an ulp
    return rewards_G - rewards_G.mean()


def _finite_rewards(group: TrajectoryGroup, p: int) -> NDArray[np.float64]:
    rewards_G = np.asarray(group.get_total_rewards(), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(rewards_G))
    if bad.size:
        g = int(bad[0])
        raise DataValidationError(
            f"group {p}, member {g}: the total reward is {rewards_G[g]}. Every reward has to be a "
            "finite number; look at the env's step and at compute_group_rewards."
        )
    return rewards_G
