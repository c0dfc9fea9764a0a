"""What has to be true of a group once it was played, checked where its makers can still be named.

Rewards and metrics come from users' envs and graders. One that is no number would end the run much
later, in a mean over a whole batch, after the batch has been trained.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mint.recipe.exceptions import DataValidationError
from mint.recipe.rl.types import Env, EnvGroupBuilder, Metrics, Trajectory


def require_envs(builder: EnvGroupBuilder, envs: Sequence[Env]) -> None:
    """Raises DataValidationError if `make_envs` made none."""
    if not envs:
        raise DataValidationError(
            f"{type(builder).__name__}.make_envs gave no envs; a group has one member or more."
        )


def require_numbers(envs_G: Sequence[Env], trajectories_G: Sequence[Trajectory]) -> None:
    """Raises DataValidationError if a step's reward or metric is no number.

    Not finite is another matter: advantages refuse such rewards, metrics may be so.
    """
    for env, trajectory in zip(envs_G, trajectories_G, strict=True):
        for turn, transition in enumerate(trajectory.transitions):
            if not (_is_number(transition.reward) and _are_numbers(transition.metrics)):
                where = f"{_name(env)}, turn {turn}"
                _refuse_reward(where, transition.reward)
                _refuse_metrics(where, transition.metrics)


def graded(
    builder: EnvGroupBuilder, rewards_G: Any, members: int
) -> Sequence[tuple[float, Metrics]]:
    """What `compute_group_rewards` gave, if it is a reward and metrics per member.

    Raises:
        DataValidationError: it is not.
    """
    where = f"{type(builder).__name__}.compute_group_rewards"
    if not isinstance(rewards_G, Sequence):
        raise DataValidationError(f"{where} gave {rewards_G!r:.200}. {_FORM}")
    if len(rewards_G) != members:
        raise DataValidationError(
            f"{where} gave {len(rewards_G)} rewards for {members} episodes. {_FORM}"
        )
    for one in rewards_G:
        if not (isinstance(one, (tuple, list)) and len(one) == 2 and isinstance(one[1], Mapping)):
            raise DataValidationError(f"{where} gave {one!r:.200} for an episode. {_FORM}")
        _refuse_reward(where, one[0])
        _refuse_metrics(where, one[1])
    return rewards_G


_FORM = "Give one (reward, metrics) for each episode, in their order."


def _refuse_reward(where: str, reward: Any) -> None:
    if not _is_number(reward):
        raise DataValidationError(f"{where}: the reward is {reward!r:.200}. Give a number.")


def _refuse_metrics(where: str, metrics: Mapping[str, Any]) -> None:
    for name, value in metrics.items():
        if not _is_number(value):
            raise DataValidationError(
                f"{where}: the metric {name!r} is {value!r:.200}. Metrics are averaged, so give a "
                "number, or leave it out; texts go into logs."
            )


def _are_numbers(metrics: Mapping[str, Any]) -> bool:
    return all(map(_is_number, metrics.values()))


def _is_number(value: Any) -> bool:
    """Of Python, of numpy, or a tensor of one element."""
    if type(value) in (float, int, bool):
        return True
    if value is None or isinstance(value, (str, bytes)):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _name(env: Env) -> str:
    """The class that a user wrote."""
    return type(getattr(env, "message_env", env)).__name__
