"""run_grpo: from an adapter to trained weights in one call.

    samples or prompts -> groups of responses -> rewards less their group's mean -> one update; again

It is a run of mint.recipe.rl with the fields that a short script has a use for, so it leaves a run
folder, and goes on from one.
"""

import asyncio
import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mint.recipe.exceptions import CheckpointError, ConfigurationError
from mint.recipe.rl import train
from mint.recipe.service import Service
from mint.recipe.stores.checkpoints import get_last_checkpoint
from mint.rl_core.adapter import RLAdapter
from mint.rl_core.config import RLConfig
from mint.rl_core.group_maker import AN_ADAPTER
from mint.rl_core.grpo_data import GrpoDatasetBuilder
from mint.rl_core.prompts import as_prompts
from mint.rl_core.running import run_to_end
from mint.rl_core.sample_based import is_sample_based

RECIPE_NAME = "mint.rl_core"

SAVE_EVERY = 5
"""Steps that an interrupt costs at the most."""
KEPT_S = 7 * 24 * 3600
"""How long a run can be gone on with."""


def run_grpo(
    adapter: RLAdapter,
    cfg: RLConfig | None = None,
    *,
    prompts: Sequence[Any] | None = None,
    service_client: Any = None,
) -> str:
    """Train a new LoRA adapter on the rewards of an adapter; print how it goes.

    Prints "Model: …, Vocab: …", for each step what `adapter.evaluate` prints, then "Saved: …".

    A response's advantage is its reward less the mean of its group. A group of equal rewards teaches
    nothing and is left out; a step of such groups trains nothing.

    Works in a script and where an event loop runs already, as in a notebook (there it runs in a thread,
    and this call returns when the run is over). Inside a coroutine: `await run_grpo_async(...)`.

    Args:
        cfg: None: RLConfig.from_env().
        prompts: for an adapter that scores tokens: texts (a user's message each), lists of messages, or
            tokens. Each step takes the next `batch` of them, or all if there are fewer, and after the last
            the first again. An adapter that scores samples brings its own: `build_dataset` is called
            once a step.
        service_client: a connected client. None: the server of MINT_BASE_URL, or the embedded one.

    Returns:
        The path of the saved weights, for create_sampling_client(model_path=...).

    Raises:
        ConfigurationError: adapter, prompts and cfg do not fit, or the server has not the model.
        Exception: a reward's own, unless the adapter sets `error_score`.
    """
    try:
        return run_to_end(
            lambda: run_grpo_async(adapter, cfg, prompts=prompts, service_client=service_client)
        )
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_how_to_go_on(cfg))
        raise


async def run_grpo_async(
    adapter: RLAdapter,
    cfg: RLConfig | None = None,
    *,
    prompts: Sequence[Any] | None = None,
    service_client: Any = None,
) -> str:
    """`run_grpo` for a coroutine."""
    _check_adapter(adapter)
    cfg = _checked(
        cfg
    )  # before the prompts: whoever gave them in its place reads that they go by name
    asked = _prompts(adapter, prompts)
    reporter = _Reporter(adapter)
    builder = GrpoDatasetBuilder(adapter=adapter, prompts=asked, cfg=cfg)
    metadata = {"recipe_name": RECIPE_NAME}
    async with await Service.connect(
        base_url=None, user_metadata=metadata, client=service_client
    ) as service:
        await _require_offered(service, cfg.model)
        config = _config(cfg, builder, service.client)
        await train.main(config, on_step=reporter)
    if not reporter.has_steps:  # said on stderr: stdout has the lines that scripts read
        print(
            f"{config.log_path} has all of its {cfg.steps} steps already, so nothing was trained. Give "
            "more steps, or another log_path.",
            file=sys.stderr,
            flush=True,
        )
    path = _saved(config.log_path)
    print(f"Saved: {path}", flush=True)
    return path


def _check_adapter(adapter: Any) -> None:
    """Raises ConfigurationError for what is no adapter."""
    if isinstance(adapter, RLAdapter):
        return
    is_class = isinstance(adapter, type) and issubclass(adapter, RLAdapter)
    wanted = f"one of it: {adapter.__name__}()" if is_class else AN_ADAPTER
    raise ConfigurationError(f"adapter={adapter!r:.100}: run_grpo takes {wanted}.")


def _prompts(adapter: RLAdapter, prompts: Any) -> list[Any] | None:
    """What token-based adapters are asked about; None for a sample-based one.

    Raises:
        ConfigurationError: adapter and prompts do not fit.
    """
    name = type(adapter).__name__
    if is_sample_based(adapter):
        if prompts is not None:
            raise ConfigurationError(
                f"{name} makes its prompts itself, of the samples that its build_dataset gives: leave "
                "prompts out."
            )
        return None
    if prompts is None:
        raise ConfigurationError(
            f'{name} scores tokens, so run_grpo has to be told what to ask: prompts=["What is 2 + 3?", '
            "...]. (An adapter with build_dataset, make_prompt and compute_reward brings its own.)"
        )
    return as_prompts(prompts)


def _checked(cfg: Any) -> RLConfig:
    if cfg is None:
        return RLConfig.from_env()
    if not isinstance(cfg, RLConfig):
        raise ConfigurationError(
            f"cfg is {type(cfg).__name__} {cfg!r:.60}: give an RLConfig(...), or leave it out. Prompts "
            "are given by name: prompts=[...]."
        )
    return cfg


async def _require_offered(service: Service, model: str) -> None:
    offered = await service.supported_models()
    if model not in offered:
        some = (
            f'RLConfig(model="{offered[0]}"), or MINT_BASE_MODEL' if offered else "another server"
        )
        raise ConfigurationError(
            f"this server has not the model {model}. It offers {', '.join(offered) or 'none'}: give "
            f"{some}."
        )


def _config(cfg: RLConfig, builder: GrpoDatasetBuilder, client: Any) -> train.Config:
    folder: dict[str, Any] = {} if cfg.log_path is None else {"log_path": cfg.log_path}
    return train.Config(
        dataset_builder=builder,
        model_name=cfg.model,
        lora_rank=cfg.rank,
        learning_rate=cfg.lr,
        max_tokens=cfg.max_tokens,
        temperature=cfg.temperature,
        remove_constant_reward_groups=True,
        eval_every=0,
        rolling_save_every=SAVE_EVERY,
        rolling_ttl_seconds=KEPT_S,
        recipe_name=RECIPE_NAME,
        service_client=client,
        **folder,
    )


def _how_to_go_on(cfg: RLConfig | None) -> str:
    """What an interrupted script leaves, and what becomes of it when it is started again."""
    log_path = None if cfg is None else cfg.log_path
    if log_path is None:
        return "Interrupted. Give RLConfig a log_path, and a run goes on when its script is started again."
    saved = get_last_checkpoint(log_path)
    if saved is None:
        return (
            f"Interrupted. Started again, the run in {log_path} begins anew: nothing was saved yet "
            f"(one save every {SAVE_EVERY} steps)."
        )
    return f"Interrupted. Started again, the run in {log_path} goes on after step {saved.batch}."


@dataclass
class _Reporter:
    """Lets the adapter say how each step went."""

    adapter: RLAdapter
    has_steps: bool = False

    async def __call__(self, step: train.FinishedStep) -> None:
        self.has_steps = True
        # In a thread, since it may do more than print, and start an event loop for that.
        told: Any = await asyncio.to_thread(
            self.adapter.evaluate, step.index + 1, step.rewards, step.datums
        )
        if inspect.isawaitable(told):
            await told


def _saved(log_path: str) -> str:
    record = get_last_checkpoint(log_path, "sampler_path")
    if record is None or record.sampler_path is None:
        raise CheckpointError(f"{log_path} has no checkpoint with weights to sample from.")
    return record.sampler_path
