"""The streaming schedule: training begins on the groups that are done, while others still play."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from mint.recipe.rl.config import StreamMinibatchConfig
from mint.recipe.rl.groups import Group
from mint.recipe.rl.report import sampling_metrics
from mint.recipe.rl.run import Run
from mint.recipe.rl.step import Step
from mint.recipe.tasks import task_group


async def run_streaming(run: Run, mode: StreamMinibatchConfig) -> None:
    """As the synchronous schedule, and on-policy like it: a batch is of one sampler.

    Groups are trained in the order in which they finish. `num_minibatches` gradients make one
    optimizer step, `num_substeps` of those the batch.
    """
    sampler = await run.starting_sampler()
    for index in run.remaining_steps():
        async with run.step(index) as step:
            if run.evaluates_before(index):
                step.metrics |= await run.evaluate(sampler, index)
            policy = run.policy(sampler)
            groups = [Group(builder, p, index) for p, builder in enumerate(run.batch(index))]
            async with task_group() as tasks:
                playing = [tasks.create_task(run.play(group, policy)) for group in groups]
                await _train_as_they_finish(step, playing, mode, run.config.num_substeps)
            step.metrics |= sampling_metrics(groups)
            sampler = await run.publish(step, sampler)
    await run.finish(sampler)


async def _train_as_they_finish(
    step: Step,
    playing: Iterable["asyncio.Task[Group]"],
    mode: StreamMinibatchConfig,
    num_substeps: int,
) -> None:
    """A gradient for every full minibatch, an optimizer step after every `num_minibatches`.

    A group that failed keeps its place in its minibatch and adds nothing to it. A data set's batch
    that is smaller than configured ends with a smaller minibatch.
    """
    size = mode.groups_per_batch // (num_substeps * mode.num_minibatches)
    count = 0
    async for minibatch in _minibatches(playing, size):
        await step.accumulate(minibatch)
        count += 1
        if count % mode.num_minibatches == 0:
            await step.step_optimizer()
    await step.step_optimizer()
    await step.finish()


async def _minibatches(
    playing: Iterable["asyncio.Task[Group]"], size: int
) -> AsyncIterator[list[Group]]:
    """Groups in the order in which they finish, `size` at a time."""
    minibatch: list[Group] = []
    for finished in asyncio.as_completed(playing):
        minibatch.append(await finished)
        if len(minibatch) == size:
            yield minibatch
            minibatch = []
    if minibatch:
        yield minibatch
