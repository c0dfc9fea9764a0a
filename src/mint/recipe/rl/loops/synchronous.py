"""The default schedule: roll a batch out, train on it, go on with the new weights."""

from mint.recipe.rl.groups import Group
from mint.recipe.rl.run import Run
from mint.recipe.tasks import run_together


async def run_synchronous(run: Run) -> None:
    """Every step waits for all of its groups; all data are of the weights that they train."""
    sampler = await run.starting_sampler()
    for index in run.remaining_steps():
        async with run.step(index) as step:
            if run.evaluates_before(index):
                step.metrics |= await run.evaluate(sampler, index)
            policy = run.policy(sampler)
            groups = [Group(builder, p, index) for p, builder in enumerate(run.batch(index))]
            await run_together(run.play(group, policy) for group in groups)
            await step.train(groups)
            sampler = await run.publish(step, sampler)
    await run.finish(sampler)
