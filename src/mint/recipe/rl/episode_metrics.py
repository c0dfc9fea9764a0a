"""What the episodes of a step were like: rewards, lengths, ends, and whatever envs report.

Letters: `P` groups of a batch, `G` members of a group.

Numbers are taken over all groups that were played, before any is left out of training.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from mint.recipe.rl.advantages import has_equal_rewards
from mint.recipe.rl.blemishes import stop_reasons
from mint.recipe.rl.step_advice import GOOD_REWARD
from mint.recipe.rl.types import (
    STOP_METRIC_PREFIX,
    Trajectory,
    TrajectoryGroup,
    Transition,
)

MANY_DATUMS = 1.5
"""Datums per episode from which on history is read and trained on more than once."""

DatumsG: TypeAlias = Sequence[int] | None


def compute_trajectory_metrics(
    trajectory_groups_P: Sequence[TrajectoryGroup],
    taglist_P: Sequence[Sequence[str]],
    datums_P: Sequence[DatumsG] | None = None,
) -> dict[str, float]:
    """Numbers of all episodes as `env/all/…`, and of each tag's as `env/<tag>/…`.

    Tags appear only if one of them selects some groups and not all: otherwise they would repeat
    `all`.

    Args:
        taglist_P: each group's tags.
        datums_P: per group, how many datums each member gave; None for a group that was not
            assembled. Gives `datums_per_episode`.

    Returns:
        Empty if there are no groups.
    """
    numbers_P: Sequence[DatumsG] = datums_P or [None] * len(trajectory_groups_P)
    rows = list(zip(trajectory_groups_P, numbers_P, strict=True))
    if not rows:
        return {}
    tagged: dict[str, list[tuple[TrajectoryGroup, DatumsG]]] = defaultdict(list)
    for row, tags in zip(rows, taglist_P, strict=True):
        for tag in dict.fromkeys(tags):
            tagged[tag].append(row)
    shown = tagged if any(len(some) < len(rows) for some in tagged.values()) else {}
    return {
        f"env/{tag}/{name}": value
        for tag, some in {**shown, "all": rows}.items()
        for name, value in _metrics_of(some).items()
    }


def history_warning(metrics: Mapping[str, float]) -> str | None:
    """One sentence where episodes of several turns fall apart into datums; to be said once a run."""
    datums = metrics.get("env/all/datums_per_episode", 0.0)
    if datums <= MANY_DATUMS or metrics.get("env/all/turns_per_episode", 0.0) <= 1:
        return None
    return (
        f"An episode gives {datums:.1f} datums instead of one: prompts do not begin with what was "
        "shown and sampled before, so history is read and trained on again. The env may return only "
        "the new messages, the renderer may rewrite history (drop reasoning, say), or the tokenizer "
        "may split the model's own text another way."
    )


def _metrics_of(rows: Sequence[tuple[TrajectoryGroup, DatumsG]]) -> dict[str, float]:
    groups = [group for group, _ in rows]
    episodes = [trajectory for group in groups for trajectory in group.trajectories_G]
    turns = [turn for episode in episodes for turn in episode.transitions]
    reports = [turn.metrics for turn in turns] + [m for group in groups for m in group.metrics_G]
    datums = [count for _, counts in rows if counts is not None for count in counts]
    told = {
        **mean_over_reporters(reports),
        **_ends(episodes),
        **_lengths(episodes, turns),
        **_by_group(groups),
    }
    rewards = [reward for group in groups for reward in group.get_total_rewards()]
    if rewards:
        told["reward/total"] = float(np.mean(rewards))
    if datums:
        told["datums_per_episode"] = float(np.mean(datums))
    return told


def mean_over_reporters(reports: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Per name, the mean over those that report it: who says nothing is not counted as 0."""
    values: dict[str, list[float]] = defaultdict(list)
    for report in reports:
        for name, value in report.items():
            values[name].append(value)
    return {name: float(np.mean(given)) for name, given in values.items()}


def _ends(episodes: Sequence[Trajectory]) -> dict[str, float]:
    """Per reason of ending, its share of all episodes: the mean over reporters is always 1."""
    counts: dict[str, int] = defaultdict(int)
    for episode in episodes:
        for reason in stop_reasons(episode.transitions):
            counts[reason] += 1
    return {
        f"frac/{STOP_METRIC_PREFIX}{reason}": count / len(episodes)
        for reason, count in counts.items()
    }


def _lengths(episodes: Sequence[Trajectory], turns: Sequence[Transition]) -> dict[str, float]:
    sampled = sum(len(turn.ac.tokens) for turn in turns)
    shown = sum(turn.ob.length for turn in turns)
    told: dict[str, float] = {
        "total_episodes": len(episodes),
        "total_turns": len(turns),
        "total_ac_tokens": sampled,
        "total_ob_tokens": shown,
        "total_cached_ob_tokens": sum(turn.ac.prompt_cache_hit_tokens for turn in turns),
    }
    if episodes:
        told["turns_per_episode"] = len(turns) / len(episodes)
    if turns:
        told["ac_tokens_per_turn"] = sampled / len(turns)
        told["ob_tokens_per_turn"] = shown / len(turns)
    return told


def _by_group(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """Groups that can teach something, and of the others how many did well."""
    constant = [group.get_total_rewards() for group in groups if has_equal_rewards(group)]
    good = sum(1 for rewards in constant if rewards and rewards[0] >= GOOD_REWARD)
    count = len(groups)
    return {
        "by_group/frac_mixed": (count - len(constant)) / count,
        "by_group/frac_all_good": good / count,
        "by_group/frac_all_bad": (len(constant) - good) / count,
    }
