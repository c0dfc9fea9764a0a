"""The asynchronous schedule: rollouts never wait for training, and may be of older weights."""

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Sequence
from itertools import count, islice
from typing import Any

from mint.recipe.exceptions import DataError
from mint.recipe.rl.config import AsyncConfig
from mint.recipe.rl.groups import Group
from mint.recipe.rl.report import Row, sampling_metrics, spread
from mint.recipe.rl.run import Run
from mint.recipe.rl.saves import Walked
from mint.recipe.rl.types import EnvGroupBuilder
from mint.recipe.stores.timing import timeline
from mint.recipe.tasks import task_group

_log = logging.getLogger("mint.recipe.rl.train")


async def run_asynchronous(run: Run, mode: AsyncConfig) -> None:
    """Workers roll out with the newest weights; each step trains groups that are done.

    The data set is walked group by group, past its end and on from its beginning if steps times
    groups_per_batch are more than it has. Evaluations run beside training.
    """
    with timeline():  # a rollout outlives the step it starts in
        await _train_beside_rollouts(run, mode)


async def _train_beside_rollouts(run: Run, mode: AsyncConfig) -> None:
    before = Walked(run.first_step * mode.groups_per_batch)  # after a start on another schedule
    walk = Walk(run.saves.walked or before, len(run.remaining_steps()) * mode.groups_per_batch)
    sampler = await run.starting_sampler()
    async with task_group() as tasks:
        rollouts = Rollouts(run, mode, sampler)
        evaluations = SnapshotEvaluations(run, tasks)
        feeding = tasks.create_task(rollouts.feed(walk, tasks))
        for index in run.remaining_steps():
            async with run.step(index) as step:
                if run.evaluates_before(index):
                    evaluations.start(sampler, index)
                groups = await rollouts.take(mode.groups_per_batch)
                await step.train(groups)
                step.metrics |= evaluations.found(index) | _age_metrics(groups, index)
                run.saves.walked = walk.trained(groups)
                sampler = await run.publish(step, sampler)
            rollouts.go_on_with(sampler, index + 1, len(groups))
        feeding.cancel()
        await evaluations.finish()
    await run.finish(sampler, evaluations.found(run.total_steps))


def _age_metrics(groups: Sequence[Group], step: int) -> Row:
    return {
        **sampling_metrics(groups),
        **spread("async/staleness", [step - group.sampler_step for group in groups]),
        "training_client/step": step,
    }


class Walk:
    """The groups of a data set, in order, without those that a resumed run has trained.

    Groups finish out of order, so what has been trained is more than a first stretch; the places
    beyond it are kept with the checkpoints.

    Args:
        kept: what has been trained.
        more: how many groups the steps that remain take. (Not a place to end at: an earlier start
            may have taken more or fewer groups a step.)
    """

    def __init__(self, kept: Walked, more: int) -> None:
        self._more = more
        self._below = kept.below
        self._ahead = set(kept.ahead)

    def remaining(self, run: Run) -> Iterator[tuple[int, EnvGroupBuilder]]:
        """Place and builder of every group still to be rolled out."""
        below, ahead = self._below, frozenset(self._ahead)
        untrained = (
            (place, builder)
            for place, builder in enumerate(self._all(run))
            if place >= below and place not in ahead
        )
        return islice(untrained, self._more)

    def trained(self, groups: Collection[Group]) -> Walked:
        """Note groups as trained, or as failed for good; returns all that is done so far."""
        self._ahead.update(group.index for group in groups)
        while self._below in self._ahead:
            self._ahead.remove(self._below)
            self._below += 1
        return Walked(self._below, tuple(sorted(self._ahead)))

    @staticmethod
    def _all(run: Run) -> Iterator[EnvGroupBuilder]:
        in_a_row = 0
        for index in count():
            builders = list(run.batch(index))
            yield from builders
            in_a_row = 0 if builders else in_a_row + 1
            if in_a_row == len(run.dataset):
                raise DataError(f"get_batch gave no groups, for none of the {in_a_row} batches.")


class Rollouts:
    """Groups that are running, and those that wait to be trained; no more than the bound together.

    A group's room is given up only when the weights it has trained are published, so with
    max_steps_off_policy=0 no group starts on weights that are about to change.
    """

    def __init__(self, run: Run, mode: AsyncConfig, sampler: Any) -> None:
        self._run = run
        self._policy = run.policy(sampler)
        self._sampler_step = run.first_step
        self._room = asyncio.Semaphore(mode.groups_per_batch * (mode.max_steps_off_policy + 1))
        self._finished: list[Group] = []
        self._one_more = asyncio.Condition()

    async def feed(self, walk: Walk, tasks: asyncio.TaskGroup) -> None:
        """Start a rollout for every group of the walk, as room comes free."""
        for place, builder in walk.remaining(self._run):
            await self._room.acquire()
            tasks.create_task(self._roll_out(Group(builder, place, self._sampler_step)))

    async def take(self, count: int) -> list[Group]:
        """Wait for `count` finished groups; those of the oldest sampler come first."""
        async with self._one_more:
            await self._one_more.wait_for(lambda: len(self._finished) >= count)
        self._finished.sort(key=lambda group: (group.sampler_step, group.index))
        taken, self._finished = self._finished[:count], self._finished[count:]
        return taken

    def go_on_with(self, sampler: Any, step: int, trained: int) -> None:
        """New rollouts use the weights that step `step` begins with; `trained` groups may start."""
        if sampler is not self._policy.sampling_client:
            self._policy = self._run.policy(sampler)
        self._sampler_step = step
        for _ in range(trained):
            self._room.release()

    async def _roll_out(self, group: Group) -> None:
        await self._run.play(group, self._policy)
        async with self._one_more:
            self._finished.append(group)
            self._one_more.notify_all()


class SnapshotEvaluations:
    """Evaluations beside training, each on the sampler of the step it started at; one at a time."""

    def __init__(self, run: Run, tasks: asyncio.TaskGroup) -> None:
        self._run = run
        self._tasks = tasks
        self._running: asyncio.Task[None] | None = None
        self._found: list[tuple[int, float, Row]] = []

    def start(self, sampler: Any, step: int) -> None:
        """Start one, unless the last is not over yet."""
        if self._running is not None and not self._running.done():
            _log.warning(
                "the evaluation due at step %d is left out: the one before is still running. "
                "Raise eval_every, or make the evaluations smaller.",
                step,
            )
            return
        self._running = self._tasks.create_task(self._evaluate(sampler, step))

    def found(self, step: int) -> Row:
        """What the oldest evaluation found that no row has yet, for the row of `step`.

        Under eval/by_step/ with the step it is of; under its plain names too where that is `step`.
        One a row, or two that end in one step would write over each other. None is left behind:
        one runs at a time, and every step has a row.
        """
        if not self._found:
            return {}
        started, seconds, metrics = self._found.pop(0)
        return {
            **{f"eval/by_step/{key}": value for key, value in metrics.items()},
            "eval/snapshot/step": started,
            "eval/timing/seconds": seconds,
            **(metrics if started == step else {}),
        }

    async def finish(self) -> None:
        """Wait for the one that is running."""
        if self._running is not None:
            await self._running

    async def _evaluate(self, sampler: Any, step: int) -> None:
        began = time.perf_counter()
        metrics = await self._run.evaluate(sampler, step)
        self._found.append((step, time.perf_counter() - began, metrics))
