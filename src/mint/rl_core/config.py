"""RLConfig: one short run in a handful of numbers, from code or from the environment."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from mint.recipe.exceptions import ConfigurationError
from mint.rl_core.checks import is_positive, is_whole

VARIABLES = {
    "model": "MINT_BASE_MODEL",
    "rank": "MINT_LORA_RANK",
    "steps": "MINT_RL_STEPS",
    "batch": "MINT_RL_BATCH",
    "group": "MINT_RL_GROUP",
    "lr": "MINT_RL_LR",
    "max_tokens": "MINT_RL_MAX_TOKENS",
    "temperature": "MINT_RL_TEMPERATURE",
}
"""Field -> the environment variable that sets it."""


@dataclass(frozen=True)
class RLConfig:
    """One run of `run_grpo`. What it leaves out is a field of `mint.recipe.rl.train.Config`.

    Raises:
        ConfigurationError: a field cannot be meant; named with its value.
    """

    model: str = "Qwen/Qwen3-0.6B"
    """Base model; one that the server offers."""
    rank: int = 16
    """Of the LoRA adapter."""
    steps: int = 5
    batch: int = 8
    """Prompts a step."""
    group: int = 4
    """Responses to each prompt. Their mean is what each is compared with."""
    lr: float = 1e-4
    """Adam's."""
    max_tokens: int = 16
    """Of one response."""
    temperature: float = 1.0
    log_path: str | None = None
    """The run folder, for `mint doctor` and `mint runs show`. One with a checkpoint is gone on with;
    there is one every fifth step. None: a new folder below `runs`, or below MINT_RUNS_DIR."""

    def __post_init__(self) -> None:
        for field in fields(self):
            check = _CHECKS.get(field.name)
            value = getattr(self, field.name)
            if check is not None and not check.holds(value):
                raise ConfigurationError(f"{field.name}={value!r}: {check.wanted}.")

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None, **defaults: Any) -> "RLConfig":
        """A config from environment variables (`VARIABLES`); an empty one counts as unset.

        Args:
            env: None: the process's own.
            defaults: fields, where their variable is unset.

        Raises:
            ConfigurationError: a variable's value cannot be; it is named.
        """
        env = os.environ if env is None else env
        told = {name: env[variable] for name, variable in VARIABLES.items() if env.get(variable)}
        return cls(**{**defaults, **{name: _read(name, text) for name, text in told.items()}})


@dataclass(frozen=True)
class _Check:
    holds: Callable[[Any], bool]
    wanted: str


_COUNT = _Check(lambda value: is_whole(value, 1), "give a whole number, 1 or more")
_CHECKS = {
    "model": _Check(
        lambda value: isinstance(value, str) and bool(value), "give the name of a base model"
    ),
    "rank": _COUNT,
    "steps": _COUNT,
    "batch": _COUNT,
    "group": _Check(
        lambda value: is_whole(value, 2),
        "give a whole number, 2 or more: a response is compared with the others of its group, so a "
        "single one teaches nothing",
    ),
    "lr": _Check(is_positive, "give a number above 0"),
    "max_tokens": _COUNT,
    "temperature": _Check(
        is_positive,
        "give a number above 0: at 0 all responses of a group are the same, and nothing can be "
        "learnt from them",
    ),
}


def _read(name: str, text: str) -> Any:
    """A variable's text as its field's value, checked here so that an error can name the variable."""
    kind = {"model": str, "lr": float, "temperature": float}.get(name, int)
    check = _CHECKS[name]
    try:
        value = kind(text)
    except ValueError:
        value = None
    if not check.holds(value):
        raise ConfigurationError(f"{VARIABLES[name]}={text!r}: {check.wanted}.")
    return value
