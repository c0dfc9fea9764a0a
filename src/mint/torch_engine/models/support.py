"""check_supported: refuse by name what our attention function would compute wrongly.

Our engine replaces a module's attention by causal full attention (multi-head, grouped or
multi-query) over flat tokens with position ids. Everything else runs in transformers' own module.
So a model is fine if its attention is just that, and if no other part of it looks at the batch as
a whole.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mint.core.errors import UnsupportedError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

TESTED: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""model_type to the class it must be; each has logits compared with transformers in the tests."""

_STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rope types whose angles depend on the position alone; tests/torch_engine/test_rope.py."""
_MOVING_ROPE = ("dynamic", "longrope")
"""These rescale by the longest position in the batch: a sequence would change with its
neighbours."""

_NOT_HONOURED: Mapping[str, str] = {
    "quantization_config": "its weights are quantized. Save a plain copy in float32, float16 or "
    "bfloat16 and serve that",
    "attn_logit_softcapping": "it caps attention scores, which our attention does not",
    "final_logit_softcapping": "it caps the logits, which our head does not",
    "attention_chunk_size": "it attends within chunks, ours attends to the whole context",
    "sinks": "it has attention sinks, which our attention leaves out",
    "attention_sinks": "it has attention sinks, which our attention leaves out",
    "use_bidirectional_attention": "it attends forwards too, ours is causal",
    "is_encoder_decoder": "it has an encoder, and only decoders are served",
    "num_local_experts": "it is a mixture of experts, which has not been tested",
    "num_experts": "it is a mixture of experts, which has not been tested",
}


def check_supported(config: "Mapping[str, Any] | PreTrainedConfig", name: str = "") -> None:
    """Refuse a model whose logits we could not promise to get right.

    Args:
        config: config.json as read, or the object transformers makes of it.
        name: of the model, for the message.

    Raises:
        UnsupportedError: names the field of config.json and what to do.
    """
    values = config if isinstance(config, Mapping) else config.to_dict()
    reason = _strange_class(values) or _not_honoured(values) or _sliding(values) or _rope(values)
    if reason:
        raise UnsupportedError(f"base model {name or '(unnamed)'} cannot be served: {reason}.")


def _strange_class(config: Mapping[str, Any]) -> str | None:
    model_type = str(config.get("model_type"))
    if model_type not in TESTED:
        return (
            f"model_type={model_type!r} has not been tested here; tested are {', '.join(TESTED)}. "
            "Choose a model of one of these families"
        )
    classes = config.get("architectures")
    if classes and TESTED[model_type] not in classes:
        return (
            f"architectures={classes}, but a language model of this family is a "
            f"{TESTED[model_type]}. Choose a checkpoint with a language-model head"
        )
    if "AutoModelForCausalLM" in (config.get("auto_map") or {}):
        return (
            "auto_map brings model code of its own, which is neither run nor tested here. If the "
            f"weights are those of a plain {TESTED[model_type]}, remove auto_map from config.json"
        )
    return None


def _not_honoured(config: Mapping[str, Any]) -> str | None:
    for field, reason in _NOT_HONOURED.items():
        if config.get(field):
            return f"{field}={config[field]!r}: {reason}"
    return None


def _sliding(config: Mapping[str, Any]) -> str | None:
    kinds = config.get("layer_types")
    if kinds:
        strange = sorted(set(kinds) - {"full_attention"})
        if not strange:
            return None
        found = f"layer_types contains {', '.join(strange)}"
    else:
        window, first = config.get("sliding_window"), config.get("max_window_layers")
        layers = config.get("num_hidden_layers", 0)
        used = config.get("use_sliding_window") and window
        if not used or (first is not None and first >= layers):
            return None
        found = f"use_sliding_window is true (sliding_window={window})"
    return (
        f"{found}, but our attention always sees the whole context. If that is meant to be off, "
        'set "use_sliding_window": false and remove layer_types in config.json; up to the length '
        "of the window the result is the same"
    )


def _rope(config: Mapping[str, Any]) -> str | None:
    for field in ("rope_parameters", "rope_scaling"):
        rope = config.get(field) or {}
        of_layers = [part for part in rope.values() if isinstance(part, Mapping)]
        for part in (rope, *of_layers):
            kind = part.get("rope_type", part.get("type", "default"))
            if kind not in _STATIC_ROPE:
                why = (
                    "whose angles depend on the longest sequence of a batch"
                    if kind in _MOVING_ROPE
                    else "which has not been tested here"
                )
                return (
                    f"{field} has rope_type={kind!r}, {why}. Types that work: "
                    f"{', '.join(_STATIC_ROPE)}"
                )
    return None
