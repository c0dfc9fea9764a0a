"""A run in progress: what every schedule needs around its steps.

A schedule (`mint.recipe.rl.loops`) decides when groups roll out and when they are trained. Batches,
samplers, saves, evaluations and rows are the same for all of them, and are here.
"""

import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mint.recipe.completers import TinkerTokenCompleter
from mint.recipe.rl.config import NEEDS_PROVENANCE, Config
from mint.recipe.rl.evaluation import (
    Evaluation,
    EvaluationResult,
    merged_metrics,
    run_evaluations,
)
from mint.recipe.rl.groups import Group
from mint.recipe.rl.kl import compute_post_kl
from mint.recipe.rl.records import Records
from mint.recipe.rl.report import FinishedStep, OnStep, Row, Tally, step_row
from mint.recipe.rl.rollout_strategy import RolloutStrategy
from mint.recipe.rl.saves import Saves
from mint.recipe.rl.step import Learner, Step
from mint.recipe.rl.types import EnvGroupBuilder, RLDataset
from mint.recipe.sampling_requests import RequestSlots
from mint.recipe.service import Service, ephemeral_sampling_client
from mint.recipe.stores.timing import measuring, span

REWARD = "env/all/reward/total"


@dataclass
class Run:
    """Everything of one run. `total_steps` counts from the first start, not from a resume."""

    config: Config
    service: Service
    learner: Learner
    dataset: RLDataset
    evaluations: Sequence[Evaluation]
    records: Records
    saves: Saves
    first_step: int
    total_steps: int
    tally: Tally = field(default_factory=Tally)
    on_step: OnStep | None = None
    """Told of each step once it is written down."""
    last_env: Row = field(default_factory=dict)
    """The env/* numbers of the last step that has any."""
    last_row: Row = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.strategy = RolloutStrategy.of(self.config.rollout_error_tolerance)
        self.slots = RequestSlots(self.config.max_concurrent_requests)

    # ------------------------------------------------------------ what comes in

    def remaining_steps(self) -> range:
        return range(self.first_step, self.total_steps)

    def batch(self, step: int) -> Sequence[EnvGroupBuilder]:
        """The builders of one step; epochs go through the data set in the same order."""
        return self.dataset.get_batch(step % len(self.dataset))

    def policy(self, sampler: Any) -> TinkerTokenCompleter:
        """The weights behind `sampler` as what rollouts ask. One for all groups of a sampler: it
        sends equal requests as one."""
        return TinkerTokenCompleter(
            sampler,
            max_tokens=self.config.max_tokens,
            temperature=self.config.temperature,
            slots=self.slots,
        )

    async def play(self, group: Group, policy: TinkerTokenCompleter) -> Group:
        """Roll a group out, and make its datums while others still play."""
        await group.play(policy, self.strategy, self.config.termination)
        with span("assemble_training_data"):
            return group.assemble(
                drop_constant=self.config.remove_constant_reward_groups,
                include_provenance=self.config.update_loss_fn in NEEDS_PROVENANCE,
            )

    # ------------------------------------------------------------ samplers and saves

    async def starting_sampler(self) -> Any:
        """A sampler of the weights that the first step begins with."""
        return await ephemeral_sampling_client(self.learner.training_client)

    async def publish(self, step: Step, sampler: Any) -> Any:
        """Save what is due, and the sampler that the next step begins with.

        The weights of a step that sent nothing are the old ones, and so is their sampler. After the
        last step there is one only if something still samples.
        """
        done = step.index + 1
        saved = await self.saves.make_due(done, self.total_steps)
        if not step.changed_weights:
            return sampler
        if done == self.total_steps and not (self.evaluates or self.config.compute_post_kl):
            return None
        with span("create_sampler"):
            if saved is not None and saved.sampler_path is not None:
                sampler = await self.service.create_sampling_client(model_path=saved.sampler_path)
            else:
                sampler = await ephemeral_sampling_client(self.learner.training_client)
        if self.config.compute_post_kl:
            await self._measure_post_kl(step, sampler)
        return sampler

    async def _measure_post_kl(self, step: Step, sampler: Any) -> None:
        with span("compute_post_kl"):
            metrics, usage = await compute_post_kl(
                step.answers.data_D, sampler, self.learner.loss_temperature or 1.0
            )
        step.kl_metrics.append(metrics)
        step.scoring_usage += usage

    # ------------------------------------------------------------ evaluations

    @property
    def evaluates(self) -> bool:
        return self.config.eval_every > 0 and bool(self.evaluations)

    def evaluates_before(self, step: int) -> bool:
        return self.evaluates and step % self.config.eval_every == 0

    async def evaluate(self, sampler: Any, step: int) -> Row:
        """Run every evaluation on a sampler, and write its episodes out under `step`."""
        results: list[EvaluationResult] = await run_evaluations(
            self.evaluations, sampler, self.learner.training_client, self.slots
        )
        for result in results:
            split = f"eval/{result.name}"
            await self.records.write_groups(split, step, result.groups, result.num_groups_to_log)
        return merged_metrics(results)

    # ------------------------------------------------------------ what goes out

    @asynccontextmanager
    async def step(self, index: int) -> AsyncIterator[Step]:
        """One training step: what is done within it is measured, and makes one row.

        The row is written before the checkpoint that says the step is over: a run that is killed
        between the two repeats the step, and its first row is moved away.
        """
        step = Step(index, self.learner)
        with measuring() as times:
            yield step
        row, health = step_row(step, self.config, self.total_steps, self.tally)
        row |= times.metrics()
        self._remember(row)
        self.records.log_row(row, index)
        self.records.log_times(times, index)
        self.records.show_progress(index, row, health)
        await self.saves.confirm(self.tally.to_json())
        await self.records.write_groups("train", index, step.groups, self.config.num_groups_to_log)
        await self._tell(step, row)

    async def finish(self, sampler: Any, found: Row | None = None) -> None:
        """Evaluate the final weights, and close the rows.

        The last row always has the training reward, since scripts read no other: after a final
        evaluation, or a last step without episodes, one more row repeats the last env/* there is.

        Args:
            found: what evaluations of earlier weights found since the last row.
        """
        evaluation = dict(found or {})
        if self.evaluates:
            evaluation |= await self.evaluate(sampler, self.total_steps)
        if evaluation or (self.last_env and REWARD not in self.last_row):
            self.records.log_row({**evaluation, **self.last_env}, self.total_steps)

    async def _tell(self, step: Step, row: Row) -> None:
        if self.on_step is None:
            return
        told = self.on_step(FinishedStep.of(step, row))
        if inspect.isawaitable(told):
            await told

    def _remember(self, row: Row) -> None:
        self.last_row = row
        env = {key: value for key, value in row.items() if key.startswith("env/")}
        if REWARD in env:
            self.last_env = env
