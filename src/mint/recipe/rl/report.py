"""The numbers of one training step: one row of metrics.jsonl, from all of its groups at once."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mint.recipe.rl.config import Config
from mint.recipe.rl.diagnosis import StepHealth, examine_step
from mint.recipe.rl.episode_metrics import compute_trajectory_metrics, mean_over_reporters
from mint.recipe.rl.groups import Group
from mint.recipe.rl.rollout_strategy import rollout_errors_of
from mint.recipe.rl.step import Step
from mint.recipe.rl.token_usage import TokenUsage, rollout_usage, trained_usage
from mint.recipe.rl.training_metrics import SampledTokens, drift_metrics
from mint.recipe.rl.types import TrajectoryGroup

Row = dict[str, float]


@dataclass
class Tally:
    """What a run has come to since it was first started; kept with its checkpoints."""

    tokens: TokenUsage = field(default_factory=TokenUsage)
    errors: Counter[str] = field(default_factory=Counter)
    """Failed rollout attempts, by type."""
    groups_skipped: int = 0

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Tally":
        return cls(
            TokenUsage(**kept.get("tokens", {})),
            Counter(kept.get("errors", {})),
            kept.get("groups_skipped", 0),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": vars(self.tokens).copy(),
            "errors": dict(self.errors),
            "groups_skipped": self.groups_skipped,
        }

    def add(self, groups: Iterable[Group], tokens: TokenUsage) -> None:
        self.tokens += tokens
        for group in groups:
            if group.trajectory_group is not None:
                self.errors.update(e.error_type for e in group.trajectory_group.rollout_errors)
            if group.error is not None:
                self.errors.update(e.error_type for e in rollout_errors_of(group.error))
                self.groups_skipped += 1

    def error_metrics(self) -> Row:
        return {
            **{f"rollout_errors/{name}": count for name, count in self.errors.items()},
            "rollout_errors/total": self.errors.total(),
            "rollout_errors/groups_skipped": self.groups_skipped,
        }


@dataclass(frozen=True)
class FinishedStep:
    """What a script may want to say of a step that is over."""

    index: int
    """From 0."""
    rewards: list[float]
    """Total rewards of the episodes that were played, in the order of groups and members."""
    datums: int
    """That were trained. 0: no weight has changed."""
    row: Mapping[str, float]
    """Its row of metrics.jsonl."""

    @classmethod
    def of(cls, step: Step, row: Row) -> "FinishedStep":
        groups = _played(sorted(step.groups, key=lambda group: group.index))
        rewards = [reward for group in groups for reward in group.get_total_rewards()]
        return cls(step.index, rewards, len(step.answers.data_D), row)


OnStep: TypeAlias = Callable[[FinishedStep], Awaitable[None] | None]


def step_row(step: Step, config: Config, total_steps: int, tally: Tally) -> tuple[Row, StepHealth]:
    """The row of a step that is done, and whether it could learn. Adds the step to the tally.

    env/* is over all groups that were played, whether or not they were trained. What a schedule or
    an evaluation put into `step.metrics` comes first: scripts read the last key that ends in
    "/correct", which is then that of all training episodes.
    """
    answers = step.answers
    tokens = SampledTokens(answers.data_D)
    counts, gradients = group_counts(step.groups), gradient_metrics(answers.gradients)
    health = examine_step(
        groups=_played(step.groups),
        groups_failed=counts["batch/groups_failed"],
        data_D=answers.data_D,
        training_logprobs_D=answers.logprobs_D or None,
        max_tokens=config.max_tokens,
        loss_metrics=gradients,
        tokens=tokens,
    )
    row = {
        **step.metrics,
        "progress/batch": step.index,
        "progress/done_frac": (step.index + 1) / total_steps,
        "optim/lr": config.learning_rate,
        "optim/skipped_step": float(not step.changed_weights),
        **counts,
        **episode_metrics(step.groups),
        **_update_metrics(step, tokens, gradients),
        **_token_metrics(step, tally),
        **health.metrics(),
    }
    if config.rollout_error_tolerance not in (None, False):
        row |= tally.error_metrics()
    return row, health


def group_counts(groups: Sequence[Group]) -> dict[str, int]:
    """What became of the groups of a batch. Kept: not left out for equal rewards."""
    return {
        "batch/groups_requested": len(groups),
        "batch/groups_completed": sum(group.trajectory_group is not None for group in groups),
        "batch/groups_failed": sum(group.trajectory_group is None for group in groups),
        "batch/groups_kept": sum(group.advantages_G is not None for group in groups),
    }


def episode_metrics(groups: Iterable[Group]) -> Row:
    """env/* over all groups that were played; nothing where none was."""
    played = [(group, group.trajectory_group) for group in groups if group.trajectory_group]
    return compute_trajectory_metrics(
        [trajectory_group for _, trajectory_group in played],
        [group.tags for group, _ in played],
        datums_P=[group.datums_G for group, _ in played],
    )


def spread(key: str, values: Sequence[float]) -> Row:
    """The ends and the mean of what groups differ in; nothing of no groups."""
    if not values:
        return {}
    return {
        f"{key}_max": max(values),
        f"{key}_min": min(values),
        f"{key}_mean": sum(values) / len(values),
    }


def sampling_metrics(groups: Sequence[Group]) -> Row:
    """How old the weights were that groups were sampled from, and what their rollouts took."""
    return {
        **spread("sampling_client/step", [group.sampler_step for group in groups]),
        **spread("time/sampling_time", [group.seconds for group in groups]),
    }


def _update_metrics(step: Step, tokens: SampledTokens, gradients: Row) -> Row:
    answers = step.answers
    if not answers.data_D:
        return {}
    return {
        **mean_over_reporters(step.kl_metrics),
        **drift_metrics(tokens, answers.logprobs_D),
        **{f"optim/{name}": value for name, value in gradients.items()},
        **answers.optimizer,
    }


def gradient_metrics(parts: Sequence[Mapping[str, float]]) -> Row:
    """Those of all forward_backwards as one. A name says how: loss:sum, entropy:mean, norm:max."""
    combine = {"sum": sum, "max": max, "min": min}
    values: dict[str, list[float]] = {}
    for metrics in parts:
        for name, value in metrics.items():
            values.setdefault(name, []).append(value)
    return {
        name: float(combine.get(name.rpartition(":")[2], _mean)(found))
        for name, found in values.items()
    }


def _token_metrics(step: Step, tally: Tally) -> Row:
    used = (
        rollout_usage(_played(step.groups))
        + step.scoring_usage
        + trained_usage(step.answers.data_D)
    )
    left_out = [group for group in step.groups if group.advantages_G is None]
    discarded = rollout_usage(_played(left_out))
    tally.add(step.groups, used)
    return {
        **used.metrics("tokens/"),
        **tally.tokens.metrics("tokens/cumulative/"),
        **discarded.metrics("tokens/discarded/"),
    }


def _played(groups: Iterable[Group]) -> list[TrajectoryGroup]:
    return [group.trajectory_group for group in groups if group.trajectory_group]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
