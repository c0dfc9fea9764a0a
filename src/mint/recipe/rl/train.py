"""Reinforcement learning, from a config to trained weights.

The way of one step: `main` puts a run together and starts a schedule (`loops`); the schedule plays
groups (`groups`, `rollouts`) and hands them to a step (`step`), which assembles datums
(`data_processing`) and sends them (`service`); the run saves and records it (`run`).
"""

import logging
from concurrent.futures import Executor

from mint.recipe.rl.config import AsyncConfig as AsyncConfig
from mint.recipe.rl.config import Config as Config
from mint.recipe.rl.config import KLReferenceConfig as KLReferenceConfig
from mint.recipe.rl.config import StreamMinibatchConfig as StreamMinibatchConfig
from mint.recipe.rl.config import validate
from mint.recipe.rl.evaluation import Evaluation, RLTestSetEvaluator, distinctly_named
from mint.recipe.rl.loops.asynchronous import run_asynchronous
from mint.recipe.rl.loops.streaming import run_streaming
from mint.recipe.rl.loops.synchronous import run_synchronous
from mint.recipe.rl.records import Records
from mint.recipe.rl.report import FinishedStep as FinishedStep
from mint.recipe.rl.report import OnStep, Tally
from mint.recipe.rl.rollout_strategy import RolloutStrategy
from mint.recipe.rl.rollouts import get_rollout_executor, set_rollout_executor
from mint.recipe.rl.run import Run
from mint.recipe.rl.saves import Saves
from mint.recipe.rl.start import Begun, begin, connect, first_step
from mint.recipe.rl.types import RLDataset
from mint.recipe.stores.checkpoints import CheckpointRecord, get_last_checkpoint
from mint.recipe.stores.console import Progress
from mint.recipe.stores.metrics_log import Logger, open_logger
from mint.recipe.stores.run_folder import RunFolder

_log = logging.getLogger("mint.recipe.rl.train")


async def main(
    config: Config, rollout_executor: Executor | None = None, *, on_step: OnStep | None = None
) -> None:
    """Run a config to its end, from its last checkpoint if its folder holds one.

    A run that is complete writes nothing and returns.

    Args:
        rollout_executor: plays groups elsewhere than on this event loop; its work is picklable.
        on_step: called on this event loop with each step that is over and written down, and awaited
            if it is a coroutine function. For a script's own lines; an error in it ends the run.

    Raises:
        ConfigurationError: the config contradicts itself; nothing has been sent.
        Exception: whatever an environment, an evaluator or the SDK raises, as itself.
    """
    validate(config)
    before = get_rollout_executor()
    set_rollout_executor(rollout_executor or before)
    try:
        await _resume_or_start(config, on_step)
    finally:
        set_rollout_executor(before)


async def _resume_or_start(config: Config, on_step: OnStep | None) -> None:
    resumed = get_last_checkpoint(config.log_path)
    datasets = None
    if resumed is not None:  # only the data set can tell whether anything is left to do
        datasets = await config.dataset_builder()
        if first_step(resumed) >= total_steps(config, datasets[0]):
            _log.info("%s: this run is complete; nothing is done.", config.log_path)
            return
    folder = RunFolder(config.log_path)
    with (
        folder.held(),
        open_logger(
            folder, wandb_project=config.wandb_project, wandb_name=config.wandb_name, config=config
        ) as logger,
    ):
        async with await connect(config) as service:
            begun = await begin(config, service, resumed, datasets, logger.get_logger_url())
            await _train(config, begun, resumed, folder, logger, on_step)


async def _train(
    config: Config,
    begun: Begun,
    resumed: CheckpointRecord | None,
    folder: RunFolder,
    logger: Logger,
    on_step: OnStep | None,
) -> None:
    first, total = first_step(resumed), _announced_total(config, begun.datasets[0])
    _log.info("%s: steps %d to %d of %d", config.model_name, first, total - 1, total)
    folder.move_rows_from(first)
    progress = Progress(total, title=folder.path.name)
    async with Records(config, folder, logger, progress, begun.find_tokenizer) as records:
        await _schedule(_run_of(config, begun, records, resumed, total, on_step))


def total_steps(config: Config, dataset: RLDataset) -> int:
    """Steps of the whole run: every batch once per epoch, unless max_steps ends it before."""
    batches = config.num_epochs * len(dataset)
    return batches if config.max_steps is None else min(batches, config.max_steps)


def _run_of(
    config: Config,
    begun: Begun,
    records: Records,
    resumed: CheckpointRecord | None,
    total: int,
    on_step: OnStep | None,
) -> Run:
    train, test = begun.datasets
    learner = begun.learner
    return Run(
        config=config,
        service=begun.service,
        learner=learner,
        dataset=train,
        evaluations=_evaluations(config, test),
        records=records,
        saves=Saves(config, begun.service, learner.training_client, resumed),
        first_step=first_step(resumed),
        total_steps=total,
        tally=Tally.from_json((resumed.get("run_so_far") if resumed else None) or {}),
        on_step=on_step,
    )


def _evaluations(config: Config, test: RLDataset | None) -> list[Evaluation]:
    """The config's evaluators, and the data set's own test set."""
    evaluators = [build() for build in config.evaluator_builders]
    if test is not None:
        strategy = RolloutStrategy.of(config.rollout_error_tolerance)
        evaluators.append(
            RLTestSetEvaluator(
                test, config.max_tokens, strategy=strategy, termination=config.termination
            )
        )
    return distinctly_named(evaluators)


async def _schedule(run: Run) -> None:
    config = run.config
    if config.async_config is not None:
        await run_asynchronous(run, config.async_config)
    elif config.stream_minibatch_config is not None:
        await run_streaming(run, config.stream_minibatch_config)
    else:
        await run_synchronous(run)


def _announced_total(config: Config, dataset: RLDataset) -> int:
    total = total_steps(config, dataset)
    if config.max_steps is not None and config.max_steps > total:
        _log.warning(
            "max_steps=%d, and the data set has %d (%d batches, num_epochs=%d): the run ends "
            "there. Raise num_epochs for more.",
            config.max_steps, total, len(dataset), config.num_epochs,
        )  # fmt: skip
    return total
