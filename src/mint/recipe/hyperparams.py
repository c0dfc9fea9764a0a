"""Learning rates and adapter sizes, from a model's own figures.

The figures come from a config.json on this machine or from the service, never from a hub.
"""

from dataclasses import dataclass
from typing import Any

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.model_info import get_model_attributes
from mint.recipe.tokenizers import model_file

_BASE_LR = 5e-5
_REFERENCE_WIDTH = 2000
_LORA_FACTOR = 10.0
_EXPONENTS = {"qwen": 0.0775, "llama": 0.781}
"""How the best rate falls with the model's width, by family."""


def get_lr(model_name: str, is_lora: bool = True) -> float:
    """A learning rate to start from.

        lr = 5e-5 * (10 if LoRA else 1) * (2000 / hidden size) ^ k,  k by family

    Raises:
        NotImplementedError: k was fitted for Qwen and Llama models only.
        ConfigurationError: neither this machine nor the service has the model's config.json.

    Source: Schulman et al. 2025, "LoRA Without Regret", for the shape and the factor 10.
    """
    family = get_model_attributes(model_name).family
    if family not in _EXPONENTS:
        raise NotImplementedError(
            f"no learning rate for {model_name}: the rule is fitted for Qwen and Llama models. "
            "Start from 1e-4 with LoRA and try a factor of 3 each way."
        )
    width = _config(model_name)["hidden_size"]
    factor = get_lora_lr_over_full_finetune_lr(model_name) if is_lora else 1.0
    return _BASE_LR * factor * (_REFERENCE_WIDTH / width) ** _EXPONENTS[family]


def get_lora_lr_over_full_finetune_lr(model_name: str) -> float:
    """How much larger an adapter's learning rate is than that of full fine-tuning; the same for all
    models that were tried (Schulman et al. 2025)."""
    return _LORA_FACTOR


def get_lora_param_count(
    model_name: str,
    lora_rank: int = 32,
    train_mlp: bool = True,
    train_attn: bool = True,
    train_unembed: bool = True,
) -> int:
    """How many parameters an adapter of this rank has: rank * (inputs + outputs) per matrix.

    Raises:
        NotImplementedError: the model is a mixture of experts.
        ConfigurationError: neither this machine nor the service has the model's config.json.
    """
    shape = _Shape.of(model_name)
    per_layer = train_attn * shape.attention + train_mlp * shape.mlp
    return lora_rank * (shape.layers * per_layer + train_unembed * shape.unembedding)


@dataclass(frozen=True)
class _Shape:
    """Inputs + outputs, summed over matrices: what a rank of one costs."""

    layers: int
    attention: int
    """q, k, v and o of one layer."""
    mlp: int
    """gate, up and down of one layer."""
    unembedding: int

    @classmethod
    def of(cls, model_name: str) -> "_Shape":
        config = _config(model_name)
        if any("expert" in key for key in config):
            raise NotImplementedError(
                f"{model_name} is a mixture of experts; its adapters are not counted here."
            )
        width, heads = config["hidden_size"], config["num_attention_heads"]
        head = config.get("head_dim") or width // heads
        queries = heads * head
        keys = config.get("num_key_value_heads", heads) * head
        return cls(
            layers=config["num_hidden_layers"],
            attention=2 * (width + queries) + 2 * (width + keys),
            mlp=3 * (width + config["intermediate_size"]),
            unembedding=width + config["vocab_size"],
        )


def _config(model_name: str) -> dict[str, Any]:
    config = model_file(model_name, "config.json")
    if config is None:
        raise ConfigurationError(
            f"the size of {model_name} is not known: there is no config.json of it on this machine, "
            "and no server that offers it. Give a model's folder as its name, or set MINT_BASE_URL."
        )
    return config.get("text_config", config)
