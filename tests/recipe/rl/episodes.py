"""Short ways to write episodes and groups of them."""

from collections.abc import Sequence
from typing import Any, Literal

from mint import ModelInput
from mint.recipe.completers import TokensWithLogprobs
from mint.recipe.rl.types import Trajectory, TrajectoryGroup, Transition


def turn(
    prompt: Sequence[int] | ModelInput,
    action: Sequence[int],
    reward: float = 0.0,
    *,
    logprobs: Sequence[float] | None = None,
    stop_reason: Literal["stop", "length"] = "stop",
    sequence_id: str | None = None,
    cached: int = 0,
    **metrics: float,
) -> Transition:
    """One turn; its logprobs are -0.5 a token unless told. "stop__x" stands for the metric stop/x."""
    if not isinstance(prompt, ModelInput):
        prompt = ModelInput.from_ints(list(prompt)) if prompt else ModelInput.empty()
    sampled = TokensWithLogprobs(
        list(action),
        [-0.5] * len(action) if logprobs is None else list(logprobs),
        stop_reason,
        sequence_id,
        cached,
    )
    told = {name.replace("__", "/"): value for name, value in metrics.items()}
    return Transition(prompt, sampled, reward, episode_done=True, metrics=told)


def episode(*turns: Transition) -> Trajectory:
    return Trajectory(list(turns), ModelInput.empty())


def group(
    *members: Trajectory, final: Sequence[float] | None = None, metrics: Sequence[Any] | None = None
) -> TrajectoryGroup:
    count = len(members)
    return TrajectoryGroup(
        list(members), list(final or [0.0] * count), list(metrics or [{} for _ in members])
    )


def rewarded(*rewards: float, **told: Any) -> TrajectoryGroup:
    """A group of one-turn episodes: prompt 1 2, answer 3, a reward each."""
    return group(*(episode(turn([1, 2], [3], reward, **told)) for reward in rewards))
