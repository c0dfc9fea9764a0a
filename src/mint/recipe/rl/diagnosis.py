"""The doctor: what a step, and a run, had to learn from.

A loop that goes on without an error may still teach nothing: every answer is cut, no answer parses,
all rewards are equal. The numbers that tell are taken from what the step has anyway.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tinker import types

from mint.recipe.rl.advantages import has_equal_rewards
from mint.recipe.rl.blemishes import Blemish, blemishes_of
from mint.recipe.rl.run_health import RunHealth as RunHealth
from mint.recipe.rl.run_health import examine_run as examine_run
from mint.recipe.rl.step_health import CLIPPED_OUTSIDE
from mint.recipe.rl.step_health import Cause as Cause
from mint.recipe.rl.step_health import StepHealth as StepHealth
from mint.recipe.rl.training_metrics import SampledTokens
from mint.recipe.rl.types import TrajectoryGroup


def examine_step(
    *,
    groups: Sequence[TrajectoryGroup],
    groups_failed: int,
    data_D: Sequence[types.Datum],
    training_logprobs_D: Sequence[Any] | None,
    max_tokens: int,
    loss_metrics: Mapping[str, float],
    tokens: SampledTokens | None = None,
) -> StepHealth:
    """What one step had to learn from.

    Args:
        groups: all that were played, trained or not.
        groups_failed: those that were not.
        data_D: what was trained, with masks, and with advantages as they were sent.
        training_logprobs_D: of its targets, under the weights in training.
        max_tokens: of one sampling call.
        loss_metrics: of forward_backward, as the server named them.
        tokens: of data_D, where somebody has looked for them already.
    """
    blemishes = _blemishes(groups, max_tokens)
    rewards = [reward for group in groups for reward in group.get_total_rewards()]
    tokens = tokens or SampledTokens(data_D)
    signals = tokens.datums_with(tokens.of("advantages") != 0)
    gaps, told_finite = _gaps(tokens, training_logprobs_D)
    losses = [value for name, value in loss_metrics.items() if name.partition(":")[0] == "loss"]
    return StepHealth(
        episodes=len(rewards),
        groups=len(groups),
        groups_failed=groups_failed,
        largest_group=max((len(group.trajectories_G) for group in groups), default=0),
        no_room=blemishes[Blemish.no_room],
        cut=blemishes[Blemish.cut],
        cut_at_max_tokens=blemishes[Blemish.cut_at_max_tokens],
        parse_errors=blemishes[Blemish.parse_error],
        over_context=blemishes[Blemish.over_context],
        timed_out=blemishes[Blemish.timed_out],
        scored_too_late=blemishes[Blemish.scored_too_late],
        scoring_failed=blemishes[Blemish.scoring_failed],
        never_graded=blemishes[Blemish.never_graded],
        groups_equal=sum(has_equal_rewards(group) for group in groups),
        reward_lowest=float(min(rewards, default=0.0)),
        reward_highest=float(max(rewards, default=0.0)),
        longest_answer=_longest_answer(groups),
        datums=len(data_D),
        datums_without_signal=len(data_D) - signals,
        loss_is_finite=told_finite and bool(np.isfinite(losses).all()),
        max_tokens=max_tokens,
        **gaps,
    )


def _blemishes(groups: Sequence[TrajectoryGroup], max_tokens: int) -> Counter[Blemish]:
    found: Counter[Blemish] = Counter()
    for group in groups:
        for episode, final_reward, graded in zip(
            group.trajectories_G, group.final_rewards_G, group.metrics_G, strict=True
        ):
            found.update(blemishes_of(episode, final_reward, graded, max_tokens))
    return found


def _longest_answer(groups: Sequence[TrajectoryGroup]) -> int:
    return max(
        (
            len(turn.ac.tokens)
            for group in groups
            for episode in group.trajectories_G
            for turn in episode.transitions
        ),
        default=0,
    )


def _gaps(
    tokens: SampledTokens, training_logprobs_D: Sequence[Any] | None
) -> tuple[dict[str, float], bool]:
    """How far the trainer is from the sampler, and whether all that it told is finite."""
    if training_logprobs_D is None:
        return {}, True
    drift_M = tokens.pick(training_logprobs_D) - tokens.logprobs_M
    if not drift_M.size:
        return {}, True
    if not np.isfinite(drift_M).all():
        return {}, False
    low, high = np.log(CLIPPED_OUTSIDE)
    return {
        "gap_mean": float(np.abs(drift_M).mean()),
        "gap_max": float(np.abs(drift_M).max()),
        "ratios_clipped": float(((drift_M < low) | (drift_M > high)).mean()),
    }, True
