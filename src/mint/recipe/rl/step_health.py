"""Whether a training step could learn anything, in numbers and, where it could not, in a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from mint.recipe.rl.step_advice import GOOD_REWARD, advice_for

CLIPPED_OUTSIDE = (0.8, 1.2)
"""Ratios outside are those that the loss `ppo` clips by default; the same yardstick for every loss."""

PREFIX = "health/"

_SHARES = {
    "no_room": ("episodes_without_room", "episodes"),
    "cut": ("episodes_cut_by_length", "episodes"),
    "cut_at_max_tokens": ("episodes_cut_at_max_tokens", "episodes"),
    "parse_errors": ("episodes_with_parse_errors", "episodes"),
    "over_context": ("episodes_over_context", "episodes"),
    "timed_out": ("episodes_timed_out", "episodes"),
    "scored_too_late": ("episodes_adapter_timeout", "episodes"),
    "scoring_failed": ("episodes_adapter_error", "episodes"),
    "never_graded": ("episodes_never_graded", "episodes"),
    "groups_equal": ("groups_with_equal_rewards", "groups"),
    "datums_without_signal": ("datums_without_signal", "datums"),
}
"""Count -> the metric that gives it as a share, and of what."""
_PLAIN = (
    "episodes", "groups", "groups_failed", "largest_group", "longest_answer", "datums",
    "reward_lowest", "reward_highest", "gap_mean", "gap_max", "ratios_clipped",
)  # fmt: skip


class Cause(StrEnum):
    """Why a step could not learn; where several hold, the first."""

    loss_not_finite = "loss_not_finite"
    no_groups = "no_groups"
    group_of_one = "group_of_one"
    no_room = "no_room"
    cut = "cut"
    parse_errors = "parse_errors"
    timed_out = "timed_out"
    over_context = "over_context"
    scored_too_late = "scored_too_late"
    scoring_failed = "scoring_failed"
    never_graded = "never_graded"
    equal_rewards = "equal_rewards"
    no_signal = "no_signal"


@dataclass(frozen=True, kw_only=True)
class StepHealth:
    """What a step had to learn from. Counts, unless a line says otherwise."""

    episodes: int
    groups: int
    """That were played."""
    groups_failed: int = 0
    largest_group: int
    """Members of it."""

    no_room: int = 0
    cut: int = 0
    cut_at_max_tokens: int = 0
    parse_errors: int = 0
    over_context: int = 0
    timed_out: int = 0
    scored_too_late: int = 0
    scoring_failed: int = 0
    never_graded: int = 0
    """Episodes with that blemish; see `mint.recipe.rl.blemishes`."""

    groups_equal: int
    """Groups whose members all got the same reward: they have no gradient."""
    reward_lowest: float = 0.0
    reward_highest: float = 0.0
    """Total rewards of episodes."""
    longest_answer: int = 0
    """Tokens sampled in one turn."""

    datums: int
    """That were trained."""
    datums_without_signal: int
    """Those without an advantage on any sampled token."""
    gap_mean: float | None = None
    gap_max: float | None = None
    """|logprob when sampled - logprob in training|, in nats, over sampled tokens. None: no training,
    or it told no logprobs."""
    ratios_clipped: float | None = None
    """Share of sampled tokens whose ratio exp(training - sampled) is outside `CLIPPED_OUTSIDE`."""
    loss_is_finite: bool = True

    max_tokens: int
    """The run's, per sampling call."""

    @property
    def unscored(self) -> int:
        """Episodes whose reward stands in for one that their grader could not give."""
        return self.scored_too_late + self.scoring_failed

    @property
    def could_learn(self) -> bool:
        """Whether rewards moved the weights. A KL penalty alone does not count."""
        return self.cause is None

    @property
    def cause(self) -> Cause | None:
        """The first reason that it could not; None if it could."""
        if not self.loss_is_finite:
            return Cause.loss_not_finite
        if not self.groups:
            return Cause.no_groups
        if self.groups_equal < self.groups:
            return None if self.datums_without_signal < self.datums else Cause.no_signal
        if self.largest_group <= 1:
            return Cause.group_of_one
        if self.reward_lowest >= GOOD_REWARD and not self.unscored:
            return Cause.equal_rewards  # solved, however the answers ended
        for cause, count in (
            (Cause.no_room, self.no_room),
            (Cause.cut, self.cut),
            (Cause.parse_errors, self.parse_errors),
            (Cause.timed_out, self.timed_out),
            (Cause.over_context, self.over_context),
            (Cause.scored_too_late, self.scored_too_late),
            (Cause.scoring_failed, self.scoring_failed),
            (Cause.never_graded, self.never_graded),
        ):
            if count == self.episodes:
                return cause
        return Cause.equal_rewards

    def advice(self) -> str | None:
        """One plain sentence on why the step could not learn and what to do; None if it could."""
        cause = self.cause
        return None if cause is None else f"Could not learn: {advice_for(cause, self)}"

    def metrics(self) -> dict[str, float]:
        """All numbers as `health/…`. Names of blemishes are shares of all episodes, groups, datums."""
        told: dict[str, float] = {PREFIX + "could_learn": float(self.could_learn)}
        told[PREFIX + "loss_is_finite"] = float(self.loss_is_finite)
        for name in _PLAIN:
            value = getattr(self, name)
            if value is not None:
                told[PREFIX + name] = value
        for name, (shown, whole) in _SHARES.items():
            told[PREFIX + shown] = getattr(self, name) / (getattr(self, whole) or 1)
        return told

    @classmethod
    def from_metrics(cls, row: Mapping[str, Any], max_tokens: int) -> "StepHealth | None":
        """The health that gave these metrics; None for a row that has none.

        Args:
            row: of metrics.jsonl, where a number that is not finite is None.
        """
        if PREFIX + "episodes" not in row:
            return None
        kinds = {field.name: field.type for field in fields(cls)}
        values: dict[str, Any] = {
            name: int(row[PREFIX + name]) if kinds[name] is int else row[PREFIX + name]
            for name in _PLAIN
            if row.get(PREFIX + name) is not None
        }
        for name, (shown, whole) in _SHARES.items():
            values[name] = round((row.get(PREFIX + shown) or 0.0) * values.get(whole, 0))
        is_finite = bool(row.get(PREFIX + "loss_is_finite", 1.0))
        return cls(**values, loss_is_finite=is_finite, max_tokens=max_tokens)
