"""What one RL run is: every choice as a field, contradictions refused before anything is sent."""

import math
import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import chz

from mint.recipe.cli_utils import runs_path
from mint.recipe.eval.evaluators import SamplingClientEvaluator
from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.rollout_limits import TerminationRewardPolicy
from mint.recipe.rl.rollout_strategy import RolloutStrategy
from mint.recipe.rl.types import RLDatasetBuilder

ADVANTAGES_ON_ACTIONS_ONLY = frozenset({"stable_reinforce"})
"""Losses that refuse an advantage on a prompt token, which a discounted KL penalty puts there."""
NEEDS_PROVENANCE = frozenset({"stable_reinforce"})
"""Losses that need to know which sampling request each token came from."""


@chz.chz
class KLReferenceConfig:
    """The model that the KL penalty keeps the policy close to."""

    base_model: str
    load_checkpoint_path: str | None = None
    """A sampler checkpoint of `base_model`; None: the base model itself."""


@chz.chz
class AsyncConfig:
    """Rollouts run beside training and may be of older weights (the asynchronous schedule)."""

    max_steps_off_policy: int
    """At most groups_per_batch * (this + 1) groups are running or waiting to be trained; 0 gives
    one batch in flight at a time."""
    groups_per_batch: int
    """Groups that one training step takes."""
    loss_fn: str | None = None
    """None: `Config.loss_fn`."""


@chz.chz
class StreamMinibatchConfig:
    """Training begins while the batch still rolls out, on groups as they finish; on-policy."""

    groups_per_batch: int
    """Groups that `get_batch` gives."""
    num_minibatches: int
    """forward_backward calls of one optimizer step."""


def _fresh_folder() -> str:
    started = time.strftime("%Y%m%d-%H%M%S")
    return str(runs_path(f"rl-{started}-{secrets.token_hex(2)}"))


def _expanded(_: object, path: str) -> str:
    return os.path.expanduser(path)


@chz.chz
class Config:
    """One RL run."""

    learning_rate: float
    """Adam's; betas (0.9, 0.95), epsilon 1e-8, no weight decay, no schedule."""
    dataset_builder: RLDatasetBuilder
    """Awaited once; gives the batches of group builders, and a test set or None."""
    model_name: str
    """Base model; also names the tokenizer."""
    max_tokens: int
    """Of one sampling call."""

    recipe_name: str = "mint.recipe.rl"
    """Told to the server as metadata of the session."""
    log_path: str = chz.field(default_factory=_fresh_folder, munger=_expanded)
    """The run folder. A folder that holds a checkpoint is resumed."""
    renderer_name: str | None = None
    """Recorded with the checkpoints; environments choose their own renderer."""
    lora_rank: int = 32
    temperature: float = 1.0
    """Of the rollouts. Other than 1, it is sent with the loss where the server can use it."""
    loss_fn: str = "importance_sampling"
    loss_fn_config: Mapping[str, Any] | None = None
    num_substeps: int = 1
    """Optimizer steps per batch."""

    kl_penalty_coef: float = 0.0
    kl_discount_factor: float = 0.0
    kl_reference_config: KLReferenceConfig | None = None
    """Required when kl_penalty_coef is above 0."""
    compute_post_kl: bool = False
    """Score the batch once more under the new weights: one more pass of sampling per step."""

    remove_constant_reward_groups: bool = False
    """Leave groups out whose members all have the same reward: they have no advantage."""
    rollout_error_tolerance: bool | RolloutStrategy | None = None
    """None or False: the first failed rollout ends the run. True: RetryOnFailure()."""
    termination: TerminationRewardPolicy | None = None
    max_concurrent_requests: int | None = None
    """Sampling requests in flight at once; None: no bound but the batch itself. For environments
    or servers that suffer from hundreds."""

    evaluator_builders: list[Callable[[], SamplingClientEvaluator]] = chz.field(
        default_factory=list
    )
    eval_every: int = 20
    """Steps; 0: never."""
    save_every: int = 20
    """Steps; 0: only the final save."""
    rolling_save_every: int = 0
    """Steps between saves that replace each other, for resuming only; 0: none."""
    rolling_ttl_seconds: int = 7200
    ttl_seconds: int | None = 604800
    """How long the server keeps periodic checkpoints; the final one stays."""
    load_checkpoint_path: str | None = None
    """Start from these weights, with a fresh optimizer."""

    num_epochs: int = 1
    max_steps: int | None = None
    async_config: AsyncConfig | None = None
    stream_minibatch_config: StreamMinibatchConfig | None = None

    num_groups_to_log: int = 4
    """Groups per step that are written out as a readable transcript; 0: none."""
    rollout_json_export: bool = True
    """One line per trajectory in the step's folder."""
    wandb_project: str | None = None
    wandb_name: str | None = None
    session_name: str | None = None
    """Noted with the session on the server."""
    base_url: str | None = None
    """None: what the client finds in its environment."""
    enable_trace: bool = False
    """Also write the spans of every step as a trace viewer reads them."""
    span_chart_every: int = 0
    """Steps between charts of where a step's seconds went; 0: none."""
    service_client: Any | None = None
    """A connected client to use in place of a new one, for instance one shared by many runs."""

    @property
    def update_loss_fn(self) -> str:
        """The loss that is trained, under whichever schedule."""
        return (self.async_config and self.async_config.loss_fn) or self.loss_fn


def validate(config: Config) -> None:
    """Refuse what contradicts itself.

    Raises:
        ConfigurationError: names the field, its value, and a value that would do.
    """
    _validate_numbers(config)
    _validate_kl(config)
    if config.async_config is not None and config.stream_minibatch_config is not None:
        raise ConfigurationError(
            "async_config and stream_minibatch_config are both set, and a run has one schedule. "
            "Set one of them to None."
        )
    if config.async_config is not None:
        _validate_async(config, config.async_config)
    if config.stream_minibatch_config is not None:
        _validate_stream(config, config.stream_minibatch_config)


def _validate_numbers(config: Config) -> None:
    _require_positive(config, "max_tokens", "lora_rank", "num_substeps", "num_epochs")
    for name in ("temperature", "learning_rate", "kl_penalty_coef"):
        value = getattr(config, name)
        if not (math.isfinite(value) and value >= 0):
            raise ConfigurationError(f"{name}={value}: give a finite number, 0 or above.")
    for name in ("eval_every", "save_every", "rolling_save_every", "num_groups_to_log"):
        if getattr(config, name) < 0:
            raise ConfigurationError(f"{name}={getattr(config, name)}: give 0 (never) or more.")
    if config.max_steps is not None and config.max_steps < 0:
        raise ConfigurationError(
            f"max_steps={config.max_steps}: give 0 or more, or None for all of the dataset."
        )
    if config.max_concurrent_requests is not None:
        _require_positive(config, "max_concurrent_requests")


def _validate_kl(config: Config) -> None:
    if config.kl_penalty_coef > 0 and config.kl_reference_config is None:
        raise ConfigurationError(
            f"kl_penalty_coef={config.kl_penalty_coef} needs a model to stay close to. Set "
            f"kl_reference_config=KLReferenceConfig(base_model={config.model_name!r}), or the "
            "coefficient to 0."
        )
    if not 0 <= config.kl_discount_factor <= 1:
        raise ConfigurationError(
            f"kl_discount_factor={config.kl_discount_factor}: give a number from 0 to 1."
        )
    discounted = config.kl_penalty_coef > 0 and config.kl_discount_factor > 0
    if discounted and config.update_loss_fn in ADVANTAGES_ON_ACTIONS_ONLY:
        raise ConfigurationError(
            f"kl_discount_factor={config.kl_discount_factor} gives prompt tokens an advantage, "
            f"and loss_fn={config.update_loss_fn!r} takes one on sampled tokens only. Set "
            "kl_discount_factor=0."
        )


def _validate_async(config: Config, mode: AsyncConfig) -> None:
    _require_positive(mode, "groups_per_batch")
    if mode.max_steps_off_policy < 0:
        raise ConfigurationError(
            f"max_steps_off_policy={mode.max_steps_off_policy}: give 0 (one batch in flight at a "
            "time) or more."
        )
    default = "importance_sampling"
    if mode.loss_fn is not None and config.loss_fn not in (default, mode.loss_fn):
        raise ConfigurationError(
            f"loss_fn={config.loss_fn!r} and async_config.loss_fn={mode.loss_fn!r} differ, and "
            "one of them would be ignored. Leave async_config.loss_fn out."
        )


def _validate_stream(config: Config, mode: StreamMinibatchConfig) -> None:
    _require_positive(mode, "groups_per_batch", "num_minibatches")
    parts = config.num_substeps * mode.num_minibatches
    if mode.groups_per_batch % parts:
        raise ConfigurationError(
            f"groups_per_batch={mode.groups_per_batch} is not a multiple of num_substeps * "
            f"num_minibatches = {config.num_substeps} * {mode.num_minibatches} = {parts}, so the "
            "minibatches would differ in size."
        )


def _require_positive(config: Any, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 1:
            raise ConfigurationError(f"{name}={getattr(config, name)}: give 1 or more.")
