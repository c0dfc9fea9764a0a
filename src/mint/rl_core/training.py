"""A training run of mint.recipe.rl from an adapter and its prompts."""

import difflib
from typing import Any

import chz

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.config import Config
from mint.rl_core.datasets import AdapterDatasetBuilder

_FIRST = ("model_name", "learning_rate", "max_tokens", "batch_size", "group_size")
"""What has no default, in the order in which people think of it."""


def train_config(adapter: Any, prompts: Any = None, **fields: Any) -> Config:
    """The config of a run: `await mint.recipe.rl.train.main(train_config(...))`.

        train_config(
            adapter, prompts, model_name=..., learning_rate=1e-4, max_tokens=64, batch_size=8,
            group_size=8,
        )

    Args:
        adapter, prompts: as AdapterDatasetBuilder has them.
        fields: of AdapterDatasetBuilder and of mint.recipe.rl.train.Config; what both have is set in
            both.

    Raises:
        ConfigurationError: a field is missing, or there is none of this name.
    """
    of_data = set(chz.chz_fields(AdapterDatasetBuilder)) - {"adapter", "prompts"}
    of_run = set(chz.chz_fields(Config)) - {"dataset_builder"}
    _refuse_unknown(set(fields), of_data | of_run)
    _refuse_missing(set(fields))
    data = {name: value for name, value in fields.items() if name in of_data}
    run = {name: value for name, value in fields.items() if name in of_run}
    builder = AdapterDatasetBuilder(adapter=adapter, prompts=prompts, **data)
    config = Config(dataset_builder=builder, **run)
    told = chz.replace(builder, lora_rank=config.lora_rank)  # also where it is the default
    return chz.replace(config, dataset_builder=told)


def _refuse_unknown(given: set[str], known: set[str]) -> None:
    unknown = sorted(given - known)
    if not unknown:
        return
    told = []
    for name in unknown:
        near = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
        told.append(f"{name} (did you mean {' or '.join(near)}?)" if near else name)
    raise ConfigurationError(
        f"train_config has no {', '.join(told)}. It takes the fields of "
        "mint.recipe.rl.train.Config and of AdapterDatasetBuilder."
    )


def _refuse_missing(given: set[str]) -> None:
    missing = [name for name in _FIRST if name not in given]
    if missing:
        raise ConfigurationError(
            f"train_config needs {', '.join(missing)} as well. For example: model_name="
            '"Qwen/Qwen3-0.6B", learning_rate=1e-4, max_tokens=64, batch_size=8, group_size=8.'
        )
