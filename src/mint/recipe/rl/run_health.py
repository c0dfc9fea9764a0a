"""The health of a whole run, read back from its folder. Needs no SDK: a folder can be anywhere."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mint.recipe.exceptions import DataFormatError
from mint.recipe.rl.step_advice import FASTER, GOOD_REWARD, WHICH_ERROR
from mint.recipe.rl.step_health import Cause, StepHealth
from mint.recipe.stores.json_lines import read_lines

REWARD = "env/all/reward/total"

MANY_LOST_STEPS = 0.2
"""Share of steps without anything to learn that is worth a line; fewer happen in any run."""
MANY_SPOILT = 0.25
"""Share of episodes with one blemish, over the run, that is worth a line."""
LARGE_GAP = 0.1
"""Nats per token between sampler and trainer: ratios are off by 10 % then."""
MANY_CLIPPED = 0.2


@dataclass(frozen=True)
class ExaminedStep:
    """One row of a run's metrics."""

    step: int
    reward: float | None
    """Mean total reward."""
    health: StepHealth


@dataclass(frozen=True)
class RunHealth:
    """What a run's steps had to learn from."""

    folder: Path
    steps: Sequence[ExaminedStep]
    config: Mapping[str, Any]

    @property
    def is_healthy(self) -> bool:
        """Whether there is nothing to advise."""
        return bool(self.steps) and not list(self.findings())

    def lines(self) -> list[str]:
        """Plain sentences: what was run, and what is to be said about it."""
        if not self.steps:
            return [
                f"{self.folder}: no step has health/ numbers in metrics.jsonl. They are written by "
                "mint.recipe.rl.train when a step ends."
            ]
        findings = list(self.findings()) or ["Nothing to advise: steps had rewards to learn from."]
        return [self._summary(), *findings]

    def findings(self) -> Iterator[str]:
        """One sentence for each thing that is wrong, the worst first."""
        yield from self._lost_steps()
        yield from self._unscored_episodes()
        yield from self._spoilt_episodes()
        yield from self._gaps()

    def shares(self) -> list[tuple[str, float, float]]:
        """(what, in the mean of all steps, in the last step) of everything that is a share.

        What only adapters can suffer from is there if it has happened.
        """
        rows = [one.health.metrics() for one in self.steps]
        last = rows[-1]
        names = [name for name in last if name in _SHOWN]
        names = [one for one in names if one not in _OF_ADAPTERS or any(row[one] for row in rows)]
        return [(_SHOWN[name], _mean([row[name] for row in rows]), last[name]) for name in names]

    def _summary(self) -> str:
        episodes = self._count(lambda health: health.episodes)
        groups = self._count(lambda health: health.groups)
        rewards = [one.reward for one in self.steps if one.reward is not None]
        earned = (
            f"; mean reward {rewards[0]:.3f} at first, {rewards[-1]:.3f} at last" if rewards else ""
        )
        return f"{_many(len(self.steps), 'step')}, {episodes} episodes in {_many(groups, 'group')}{earned}."

    def _lost_steps(self) -> Iterator[str]:
        """Steps that could not learn, by cause; the latest of each speaks for all."""
        lost = [one.health for one in self.steps if not _could_learn_or_is_solved(one.health)]
        are_many = len(lost) >= MANY_LOST_STEPS * len(self.steps)
        for cause, count in Counter(health.cause for health in lost).most_common():
            if are_many or cause is Cause.loss_not_finite:
                latest = [health for health in lost if health.cause is cause][-1]
                yield f"{count} of {_many(len(self.steps), 'step')}: {latest.advice()}"

    def _spoilt_episodes(self) -> Iterator[str]:
        """Blemishes that are frequent, unless they explained the steps that were lost."""
        told = {one.health.cause for one in self.steps}
        failed = self._count(lambda health: health.groups_failed)
        if failed and Cause.no_groups not in told:
            yield f"{_many(failed, 'group')} failed: see rollout_errors/ and the log."
        episodes = self._count(lambda health: health.episodes)
        for cause, count, sentence in (
            (Cause.cut, self._count(lambda health: health.cut),
             "were cut by their length: raise max_tokens or use a non-thinking renderer"),
            (Cause.parse_errors, self._count(lambda health: health.parse_errors),
             "had answers that could not be parsed: check the renderer"),
            (Cause.no_room, self._count(lambda health: health.no_room),
             "had no room for an answer: raise max_trajectory_tokens"),
            (Cause.over_context, self._count(lambda health: health.over_context),
             "outgrew their context: raise max_trajectory_tokens"),
            (Cause.timed_out, self._count(lambda health: health.timed_out),
             "ran out of time: raise rollout_timeout_seconds"),
        ):  # fmt: skip
            if count and count >= MANY_SPOILT * episodes and cause not in told:
                yield f"{count} of {episodes} episodes {sentence}."

    def _unscored_episodes(self) -> Iterator[str]:
        """Rewards that say nothing of their answers; every one is told, for they are trained on."""
        told = {one.health.cause for one in self.steps}
        episodes = self._count(lambda health: health.episodes)
        late = self._count(lambda health: health.scored_too_late)
        failed = self._count(lambda health: health.scoring_failed)
        if late and Cause.scored_too_late not in told:
            yield (
                f"{late} of {episodes} episodes were not scored in time and got timeout_score: "
                f"{FASTER}."
            )
        if failed and Cause.scoring_failed not in told:
            yield (
                f"{failed} of {episodes} episodes could not be scored and got error_score: "
                f"{WHICH_ERROR}."
            )

    def _gaps(self) -> Iterator[str]:
        gaps = [one.health.gap_mean for one in self.steps if one.health.gap_mean is not None]
        if gaps and _mean(gaps) > LARGE_GAP:
            yield (
                f"Trainer and sampler differ by {_mean(gaps):.2g} nats a token in the mean, so ratios "
                f"are far from 1: {self._why_gaps()}."
            )
        clipped = [h.ratios_clipped for h in (one.health for one in self.steps)
                   if h.ratios_clipped is not None]  # fmt: skip
        if clipped and _mean(clipped) > MANY_CLIPPED:
            yield (
                f"{_mean(clipped):.0%} of sampled tokens have a ratio that ppo would clip: lower "
                "learning_rate or num_substeps, or train on fresher samples."
            )

    def _why_gaps(self) -> str:
        if self.config.get("async_config"):
            return "samples may be old; lower max_steps_off_policy"
        if self.config.get("temperature", 1.0) != 1.0:
            return (
                f"does the server scale its loss by temperature={self.config['temperature']:g}? With "
                "temperature=1 it need not"
            )
        return "`mint doctor --parity` compares the server's trainer with its sampler"

    def _count(self, of: Callable[[StepHealth], int]) -> int:
        return sum(of(one.health) for one in self.steps)


def examine_run(folder: Path) -> RunHealth:
    """Read back what the steps of a run had to learn from; a run that goes on can be examined too.

    Raises:
        DataFormatError: the folder has no metrics.jsonl, or it or config.json cannot be read.
    """
    folder = Path(folder)
    metrics = folder / "metrics.jsonl"
    if not metrics.is_file():
        raise DataFormatError(
            f"{folder} is no run folder: it has no metrics.jsonl. Give the log_path of a run; one "
            "that has not finished its first step has nothing to show yet."
        )
    config = _config(folder / "config.json")
    max_tokens = int(config.get("max_tokens") or 0)
    steps = [
        ExaminedStep(int(row["step"]), row.get(REWARD), health)
        for row in read_lines(metrics)
        if (health := StepHealth.from_metrics(row, max_tokens)) is not None
    ]
    return RunHealth(folder, steps, config)


_SHOWN = {
    "health/groups_with_equal_rewards": "groups with equal rewards",
    "health/episodes_cut_by_length": "episodes cut by length",
    "health/episodes_with_parse_errors": "episodes with parse errors",
    "health/episodes_without_room": "episodes without room to answer",
    "health/episodes_over_context": "episodes over their context",
    "health/episodes_timed_out": "episodes out of time",
    "health/episodes_adapter_timeout": "episodes not scored in time",
    "health/episodes_adapter_error": "episodes whose scoring failed",
    "health/episodes_never_graded": "episodes whose reward was never computed",
    "health/datums_without_signal": "datums without signal",
}

_OF_ADAPTERS = {"health/episodes_adapter_timeout", "health/episodes_adapter_error"}


def _could_learn_or_is_solved(health: StepHealth) -> bool:
    """Where every reward is good and the same, a run has come to its end, not to grief."""
    is_solved = health.cause is Cause.equal_rewards and health.reward_lowest >= GOOD_REWARD
    return health.could_learn or is_solved


def _config(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataFormatError(f"{path} is no JSON ({error}). Mend or delete it.") from error
    return config if isinstance(config, dict) else {}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
