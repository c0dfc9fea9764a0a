"""AdapterConfig: what PEFT's adapter_config.json says of a LoRA, as far as we can honour it.

Ours is y = W x + (alpha / rank) B A x with one rank and one alpha, on linears. Whatever means
something else is refused by the name of its field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mint.core.errors import UnsupportedError, UserError
from mint.core.lora import MAX_RANK

ADAPTER_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"

_OTHER_MATHS: Mapping[str, str] = {
    "use_dora": "it also scales each row of a weight (DoRA)",
    "use_rslora": "its scale is alpha / sqrt(rank); set lora_alpha to alpha * sqrt(rank) and "
    "use_rslora to false, which is the same function",
    "modules_to_save": "whole modules were trained beside the adapter",
    "lora_bias": "B has a bias",
    "fan_in_fan_out": "its weights are stored transposed",
    "layer_replication": "it repeats layers of the base model",
    "trainable_token_indices": "embeddings of single tokens were trained",
    "target_parameters": "it adapts bare parameters, not linears",
    "use_qalora": "its input is pooled (QA-LoRA)",
    "use_bdlora": "its matrices are block-diagonal (BD-LoRA)",
    "alora_invocation_tokens": "it applies to a part of the tokens only (aLoRA)",
    "arrow_config": "it routes between adapters (Arrow)",
    "kasa_config": "it also changes the base weights (KaSA)",
    "monteclora_config": "its weights are random variables (MonteCLoRA)",
    "velora_config": "it compresses activations (VeLoRA)",
    "megatron_config": "it belongs to Megatron's layers",
}
"""Fields of PEFT's LoraConfig that change the function or the files when they are set."""

_ORTHOGONAL_STARTS = ("pissa", "corda", "olora", "eva", "loftq", "lora_ga")
"""init_lora_weights that rewrite the base weights: the adapter is right only on those."""


@dataclass(frozen=True)
class AdapterConfig:
    """One LoRA as PEFT describes it."""

    rank: int
    alpha: float
    base_model: str | None
    """As its author called it: a hub's name, or a folder of another machine."""


def read_adapter_config(config: Mapping[str, Any]) -> AdapterConfig:
    """What an adapter_config.json asks for.

    Raises:
        UnsupportedError: names the field that we would not honour.
        UserError: a field is missing or of the wrong type.
    """
    kind = config.get("peft_type")
    if kind != "LORA":
        raise UnsupportedError(f"{CONFIG_FILE}: peft_type={kind!r}; only LORA can be taken.")
    for field, meaning in _OTHER_MATHS.items():
        if config.get(field):
            raise UnsupportedError(f"{CONFIG_FILE}: {field}={config[field]!r}: {meaning}.")
    if config.get("bias", "none") != "none":
        raise UnsupportedError(
            f"{CONFIG_FILE}: bias={config['bias']!r}: biases were trained beside the adapter."
        )
    _check_start(config)
    rank = _number(config, "r", lambda value: isinstance(value, int) and 1 <= value <= MAX_RANK)
    alpha = _number(config, "lora_alpha", lambda value: 0 < value < float("inf"))
    _check_uniform(config, "rank_pattern", rank)
    _check_uniform(config, "alpha_pattern", alpha)
    base = config.get("base_model_name_or_path")
    return AdapterConfig(int(rank), float(alpha), base if isinstance(base, str) and base else None)


def _check_start(config: Mapping[str, Any]) -> None:
    start = config.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower().startswith(_ORTHOGONAL_STARTS):
        raise UnsupportedError(
            f"{CONFIG_FILE}: init_lora_weights={start!r} changed the base model's weights when "
            "training began. Convert the adapter to a plain one first (PEFT's save_pretrained with "
            "path_initial_model_for_weight_conversion)."
        )


def _check_uniform(config: Mapping[str, Any], field: str, value: float) -> None:
    pattern = config.get(field) or {}
    if not isinstance(pattern, Mapping) or any(other != value for other in pattern.values()):
        raise UnsupportedError(
            f"{CONFIG_FILE}: {field}={pattern!r} differs from {value} for some layers; here an "
            "adapter has one rank and one alpha."
        )


def _number(config: Mapping[str, Any], field: str, fits: Callable[[Any], bool]) -> float:
    value = config.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not fits(value):
        raise UserError(f"{CONFIG_FILE}: {field}={value!r} is no {field} of a LoRA.")
    return value
