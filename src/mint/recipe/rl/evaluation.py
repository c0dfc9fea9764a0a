"""Evaluations of a run: a test set played once, and whatever evaluators a config brings."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mint.recipe.completers import TinkerTokenCompleter
from mint.recipe.eval.evaluators import (
    Evaluator,
    SamplingClientEvaluator,
    TrainingClientEvaluator,
)
from mint.recipe.exceptions import EvalError
from mint.recipe.rl.groups import Group
from mint.recipe.rl.report import episode_metrics
from mint.recipe.rl.rollout_limits import TerminationRewardPolicy
from mint.recipe.rl.rollout_strategy import RolloutStrategy
from mint.recipe.rl.types import RLDataset
from mint.recipe.stores.timing import span
from mint.recipe.tasks import run_together


class RLTestSetEvaluator(SamplingClientEvaluator):
    """Plays every group of a data set once; answers with "<name>/env/all/…".

    Args:
        max_tokens: of one sampling call.
        num_groups_to_log: groups that a run writes out as a readable transcript.
        strategy: what a failed rollout does; None: it ends the evaluation.
        temperature: of the rollouts.
        termination: how episodes that ran into a limit are scored.
    """

    def __init__(
        self,
        dataset: RLDataset,
        max_tokens: int,
        name: str = "test",
        num_groups_to_log: int = 4,
        strategy: RolloutStrategy | None = None,
        temperature: float = 1.0,
        termination: TerminationRewardPolicy | None = None,
    ) -> None:
        self.dataset = dataset
        self.max_tokens = max_tokens
        self.name = name
        self.num_groups_to_log = num_groups_to_log
        self.strategy = RolloutStrategy.of(strategy)
        self.temperature = temperature
        self.termination = termination

    async def __call__(self, sampling_client: Any) -> dict[str, float]:
        return self.metrics(await self.play(sampling_client))

    async def play(self, sampling_client: Any, slots: Any | None = None) -> list[Group]:
        """The groups, played.

        Args:
            slots: bounds the requests in flight, where an evaluation shares that bound with a run.
        """
        policy = TinkerTokenCompleter(
            sampling_client, max_tokens=self.max_tokens, temperature=self.temperature, slots=slots
        )
        batches = (self.dataset.get_batch(index) for index in range(len(self.dataset)))
        builders = [builder for batch in batches for builder in batch]
        groups = [Group(builder, index) for index, builder in enumerate(builders)]
        return await run_together(
            group.play(policy, self.strategy, self.termination) for group in groups
        )

    def metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        """The numbers of groups that were played."""
        return {f"{self.name}/{key}": value for key, value in episode_metrics(groups).items()}


@dataclass(frozen=True)
class EvaluationResult:
    """What one evaluation found."""

    name: str
    metrics: dict[str, float]
    groups: list[Group] = field(default_factory=list)
    """Those of a test set, to be written out."""
    num_groups_to_log: int = 0


@dataclass(frozen=True)
class Evaluation:
    """An evaluator under a name that no other of its run has."""

    name: str
    evaluator: Evaluator

    async def run(self, sampling_client: Any, training_client: Any, slots: Any) -> EvaluationResult:
        evaluator = self.evaluator
        if isinstance(evaluator, RLTestSetEvaluator):
            groups = await evaluator.play(sampling_client, slots)
            metrics = self._renamed(evaluator.metrics(groups))
            return EvaluationResult(self.name, metrics, groups, evaluator.num_groups_to_log)
        trains = isinstance(evaluator, TrainingClientEvaluator)
        metrics = await evaluator(training_client if trains else sampling_client)
        if not isinstance(metrics, Mapping):
            raise EvalError(
                f"{type(evaluator).__name__} ({self.name}) gave {metrics!r:.200}. An evaluator "
                "returns its numbers by name, {} if it has none."
            )
        return EvaluationResult(self.name, self._renamed(metrics))

    def _renamed(self, metrics: Mapping[str, float]) -> dict[str, float]:
        own = f"{getattr(self.evaluator, 'name', self.name)}/"
        return {
            f"{self.name}/{key.removeprefix(own)}" if key.startswith(own) else key: value
            for key, value in metrics.items()
        }


def distinctly_named(evaluators: Sequence[Evaluator]) -> list[Evaluation]:
    """Evaluations of the names the evaluators give themselves; a second "test" is "test_2"."""
    named: dict[str, Evaluation] = {}
    for evaluator in evaluators:
        own = getattr(evaluator, "name", type(evaluator).__name__)
        candidates = itertools.chain([own], (f"{own}_{number}" for number in itertools.count(2)))
        name = next(candidate for candidate in candidates if candidate not in named)
        named[name] = Evaluation(name, evaluator)
    return list(named.values())


async def run_evaluations(
    evaluations: Sequence[Evaluation], sampling_client: Any, training_client: Any, slots: Any = None
) -> list[EvaluationResult]:
    """All of them at once, on one sampler."""
    with span("run_evals"):
        return await run_together(
            evaluation.run(sampling_client, training_client, slots) for evaluation in evaluations
        )


def merged_metrics(results: Sequence[EvaluationResult]) -> dict[str, float]:
    """All numbers in one row; a key that two evaluations give is the later one's under its name."""
    merged: dict[str, float] = {}
    for result in results:
        for key, value in result.metrics.items():
            merged[f"{result.name}/{key}" if key in merged else key] = value
    return merged
