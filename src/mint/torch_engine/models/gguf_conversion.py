"""A Llama model in one GGUF file -> a model folder: config, float32 safetensors, tokenizer.

GGUF is llama.cpp's file format (its docs/gguf.md): metadata under dotted keys, tensors with short
names, quantized in blocks. Imported only when something is converted.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor, TokenType, dequantize
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from mint.core.errors import ConfigError
from mint.torch_engine.models.progress import with_progress
from mint.torch_engine.models.tokenizer_files import (
    SpecialTokens,
    byte_level_bpe,
    write_tokenizer,
)

_OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

DIGITS_THEN_WORDS: PreTokenizer = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
)
"""What the file calls "smollm": every digit stands alone, then words, then bytes."""


def convert(source: Path, folder: Path, on_share: Callable[[float], None] = lambda _: None) -> None:
    """Write the model folder for `source`, with a line of progress on stderr.

    Raises:
        ConfigError: the file is no Llama model with a "smollm" tokenizer.
    """
    reader = GGUFReader(source)
    for key, known in (("general.architecture", "llama"), ("tokenizer.ggml.pre", "smollm")):
        if _value(reader, key) != known:
            raise ConfigError(f"{source}: {key} is {_value(reader, key)!r}, expected {known!r}.")
    config = read_config(reader)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tokenizer, special = read_tokenizer(reader)
    write_tokenizer(folder, tokenizer, special)
    weights = {
        weight_name(tensor.name): _weight(tensor, config)
        for tensor in with_progress(reader.tensors, f"Converting {source.name}", on_share=on_share)
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def read_config(reader: GGUFReader) -> dict[str, Any]:
    """config.json in transformers' words."""
    heads = _value(reader, "llama.attention.head_count")
    width = _value(reader, "llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": _value(reader, "llama.vocab_size"),
        "hidden_size": width,
        "intermediate_size": _value(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _value(reader, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _value(reader, "llama.attention.head_count_kv"),
        "head_dim": width // heads,
        "hidden_act": "silu",
        # The file keeps float32; 1e-5 is what was written into it.
        "rms_norm_eps": float(f"{_value(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": _value(reader, "llama.rope.freq_base"),
        "max_position_embeddings": _value(reader, "llama.context_length"),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
        "bos_token_id": _value(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _value(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _value(reader, "tokenizer.ggml.padding_token_id"),
        "torch_dtype": "float32",
    }


def read_tokenizer(reader: GGUFReader) -> tuple[Tokenizer, SpecialTokens]:
    """The tokenizer from the file's tokens, merges and token types.

    A vocabulary may lack the token of a byte (SmolLM2's lacks six control characters and the first
    bytes of planes 4 to 11, where nothing is assigned); such a byte is left out of the encoding, as
    in the published tokenizer. Every other text comes back whole.
    """
    tokens: list[str] = _value(reader, "tokenizer.ggml.tokens")
    kinds: list[int] = _value(reader, "tokenizer.ggml.token_type")
    merges = [tuple(pair.split(" ")) for pair in _value(reader, "tokenizer.ggml.merges")]
    control = [
        token for token, kind in zip(tokens, kinds, strict=True) if kind == TokenType.CONTROL
    ]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = byte_level_bpe(vocab, merges, control, DIGITS_THEN_WORDS)

    def role(key: str) -> str:
        return tokens[_value(reader, f"tokenizer.ggml.{key}_token_id")]

    return tokenizer, SpecialTokens(
        bos=role("bos"),
        eos=role("eos"),
        pad=role("padding"),
        unk=role("unknown"),
        chat_template=_value(reader, "tokenizer.chat_template"),
    )


def weight_name(name: str) -> str:
    """transformers' name of a tensor: "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj…".

    Raises:
        ConfigError: no Llama model has such a tensor.
    """
    parts = name.split(".")
    if parts[0] in _OUTSIDE:
        return f"{_OUTSIDE[parts[0]]}.{parts[1]}"
    if parts[0] == "blk" and len(parts) == 4 and parts[2] in _INSIDE:
        return f"model.layers.{parts[1]}.{_INSIDE[parts[2]]}.{parts[3]}"
    raise ConfigError(f"tensor {name!r} is not part of a Llama model.")


def halves_from_pairs(rows_RE: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder the rows of each head for transformers' rope.

    llama.cpp turns neighbouring rows (2i, 2i+1) against each other, transformers rows
    (i, i + half): within a head, even rows come first and odd rows after.
    """
    rows, width = rows_RE.shape
    pairs = rows_RE.reshape(heads, rows // heads // 2, 2, width)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, width)


def _weight(tensor: ReaderTensor, config: dict[str, Any]) -> NDArray[np.float32]:
    values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    if tensor.name.endswith("attn_q.weight"):
        return halves_from_pairs(values, config["num_attention_heads"])
    if tensor.name.endswith("attn_k.weight"):
        return halves_from_pairs(values, config["num_key_value_heads"])
    return np.ascontiguousarray(values)


def _value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise ConfigError(f"the GGUF file has no {key}.")
    return field.contents()
