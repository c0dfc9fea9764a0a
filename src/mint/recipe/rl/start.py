"""The beginning of a run: a connection, the weights to train, the data, the model to stay close to."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from mint.recipe.exceptions import CheckpointError, DataError
from mint.recipe.rl.config import Config
from mint.recipe.rl.dataset_utils import bind
from mint.recipe.rl.reference import reference_of
from mint.recipe.rl.step import Learner
from mint.recipe.rl.types import RLDataset
from mint.recipe.service import Service
from mint.recipe.stores.checkpoints import CheckpointRecord
from mint.recipe.stores.run_folder import git_revision
from mint.recipe.tasks import task_group
from mint.recipe.tokenizers import provide_from

_log = logging.getLogger("mint.recipe.rl.train")

Datasets = tuple[RLDataset, RLDataset | None]
"""To train on, and to test on."""


@dataclass(frozen=True)
class Begun:
    """What a run needs of the service and of the user's builders."""

    service: Service
    learner: Learner
    datasets: Datasets

    def find_tokenizer(self) -> Any:
        """The model's, or None where nobody has it. May ask the server, and take seconds."""
        model = self.learner.config.model_name
        try:
            return provide_from(self.learner.training_client, model)
        except Exception as error:  # a run can do without: envs that need one look for themselves
            _log.warning("no tokenizer for %s (%s); transcripts show token ids.", model, error)
            return None


async def connect(config: Config) -> Service:
    """A connection of the run's own, or the client that the config brings."""
    return await Service.connect(
        base_url=config.base_url,
        user_metadata=await asyncio.to_thread(_about_run, config),
        client=config.service_client,
    )


async def begin(
    config: Config,
    service: Service,
    resumed: CheckpointRecord | None,
    datasets: Datasets | None,
    link: str | None,
) -> Begun:
    """Wait at once for the training client, the data set and the reference model.

    Args:
        datasets: if they have been built already.
        link: where a tracker shows the run.
    """
    temperature = await _loss_temperature(config, service)
    async with task_group() as tasks:
        training = tasks.create_task(_training_client(config, service, resumed, link))
        reference = tasks.create_task(reference_of(config, service, temperature or 1.0))
        built = tasks.create_task(_built(config, datasets))
    learner = Learner(config, training.result(), temperature, reference.result())
    for dataset in built.result():
        if dataset is not None:
            await asyncio.to_thread(bind, dataset, learner.training_client)
    return Begun(service, learner, built.result())


async def _built(config: Config, datasets: Datasets | None) -> Datasets:
    built = datasets or await config.dataset_builder()
    if len(built[0]) == 0:
        raise DataError(
            f"{type(config.dataset_builder).__name__} gave a data set of no batches; there is "
            "nothing to train on."
        )
    return built


async def _training_client(
    config: Config, service: Service, resumed: CheckpointRecord | None, link: str | None
) -> Any:
    """The weights to train: of the last checkpoint with its optimizer, of `load_checkpoint_path`
    with a fresh one, or a new adapter."""
    about = {"renderer_name": config.renderer_name, "wandb_link": link}
    metadata = {key: value for key, value in about.items() if value is not None}
    if resumed is not None:
        _log.info("going on from %s, before step %d", resumed.state_path, first_step(resumed))
        return await service.create_training_client_from_state(
            str(resumed.state_path), with_optimizer=True, user_metadata=metadata
        )
    if config.load_checkpoint_path is not None:
        await _warn_of_another_renderer(config, service, config.load_checkpoint_path)
        return await service.create_training_client_from_state(
            config.load_checkpoint_path, with_optimizer=False, user_metadata=metadata
        )
    return await service.create_lora_training_client(
        config.model_name, config.lora_rank, user_metadata=metadata
    )


async def _warn_of_another_renderer(config: Config, service: Service, path: str) -> None:
    recorded = (await service.user_metadata_of(path)).get("renderer_name")
    if recorded and config.renderer_name and recorded != config.renderer_name:
        _log.warning(
            "load_checkpoint_path=%s was trained with renderer %r, and renderer_name=%r. Prompts "
            "of another form than a model was trained on cost quality; use the same one.",
            path, recorded, config.renderer_name,
        )  # fmt: skip


async def _loss_temperature(config: Config, service: Service) -> float | None:
    """What to send with the loss, and to score the reference at.

    Sampled logprobs are of the temperature-scaled distribution (greedy ones are of temperature 1).
    Ratios and KL compare them with others, which have to be of the same.
    """
    if config.temperature in (0.0, 1.0):
        return None
    if await service.scales_loss_by_temperature():
        return config.temperature
    _log.warning(
        "temperature=%s, and this server reads the loss and the reference at temperature 1: the "
        "ratios of loss_fn and the penalty of kl_penalty_coef compare different distributions. "
        "Set temperature=1.0, or kl_penalty_coef with this in mind.", config.temperature,
    )  # fmt: skip
    return None


def _about_run(config: Config) -> dict[str, str]:
    about = {
        "recipe_name": config.recipe_name,
        "session_name": config.session_name,
        "git_revision": git_revision(),
    }
    return {key: value for key, value in about.items() if value is not None}


def first_step(resumed: CheckpointRecord | None) -> int:
    """The step that a run begins with: the next one of the record it goes on from."""
    if resumed is None:
        return 0
    if resumed.batch is None:
        raise CheckpointError(
            f"the last line of checkpoints.jsonl ({resumed.name}) has no `batch`, so there is no "
            "telling which step comes next. Give another log_path."
        )
    return resumed.batch
