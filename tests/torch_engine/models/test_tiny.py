"""Tiny models are real ones: what loads a model from the hub loads them, and gets all of it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedModel

from mint.core.errors import ConfigError
from mint.testing import tiny_model
from mint.torch_engine.models.files import eos_token_ids
from mint.torch_engine.models.loader import load_module
from mint.torch_engine.models.registry import ModelFiles, ModelRegistry
from mint.torch_engine.models.tiny import Family, build_tiny

FAMILIES: tuple[Family, ...] = ("llama", "qwen2", "qwen3")


def load(folder: Path, attention: str = "eager") -> PreTrainedModel:
    files = ModelFiles("tiny", folder, "folder")
    return load_module(files, dtype="float32", device="cpu", attention=attention)


def logits(module: PreTrainedModel, text: str) -> torch.Tensor:
    return module(torch.tensor([list(text.encode())])).logits[0]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_of_a_tiny_model_reaches_the_transformers_module(tmp_path, family, tied):
    written = load_file(build_tiny(tmp_path, family=family, tied=tied) / "model.safetensors")

    module = load(tmp_path)

    loaded = module.state_dict()
    assert set(loaded) - set(written) == ({"lm_head.weight"} if tied else set())
    assert all(np.array_equal(loaded[name].numpy(), written[name]) for name in written)
    head, embedding = module.get_submodule("lm_head"), module.get_submodule("model.embed_tokens")
    assert (head.weight is embedding.weight) is tied


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tiny_model_is_far_from_a_uniform_distribution(tmp_path, family):
    predicted = logits(load(build_tiny(tmp_path, family=family)), "How are you?")

    most_likely = predicted.softmax(-1).max(-1).values

    assert most_likely.mean() > 10 / predicted.shape[-1]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_key_value_heads_may_be_shared_by_any_number_of_query_heads(tmp_path, kv_heads):
    module = load(build_tiny(tmp_path, kv_heads=kv_heads))

    eager = logits(module, "abc")

    assert torch.allclose(eager, logits(load(tmp_path, "sdpa"), "abc"), atol=1e-5)


def test_the_same_seed_gives_the_same_files_and_another_seed_others(tmp_path):
    first, again, other = (
        build_tiny(tmp_path / str(i), seed=seed) / "model.safetensors"
        for i, seed in enumerate((1, 1, 2))
    )

    assert first.read_bytes() == again.read_bytes() != other.read_bytes()


def test_a_byte_token_is_the_byte_and_the_special_tokens_follow(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(build_tiny(tmp_path))

    assert tokenizer("añ <|im_end|>").input_ids == [*"añ ".encode(), 258]
    assert tokenizer.decode([0xF0, 0x9F, 0x8C, 0xB3]) == "🌳"
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id) == (
        258, 257, 256,
    )  # fmt: skip
    assert eos_token_ids(tmp_path) == (256, 258)


def test_a_tiny_chat_reads_as_chatml(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(build_tiny(tmp_path))

    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )

    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_qwen_models_can_have_qwens_real_vocabulary(tmp_path, family):
    """Ids as Qwen2's published tokenizer gives them."""
    folder = build_tiny(tmp_path, family=family, vocab="qwen")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "Hello, 你好 what's 12*345?\n\n  x<|im_end|>"

    ids = tokenizer(text).input_ids

    assert ids == [9707, 11, 220, 108386, 1128, 594, 220, 16, 17, 9, 18, 19, 20, 1939, 220, 856,
                   151645]  # fmt: skip
    assert ids == Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    assert tokenizer.decode(ids) == text
    assert load(folder)(torch.tensor([ids])).logits.shape == (1, len(ids), 151646)


def test_sizes_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="kv_heads=3"):
        build_tiny(tmp_path, heads=4, kv_heads=3)
    with pytest.raises(ConfigError, match="259 tokens"):
        build_tiny(tmp_path, vocab_size=100)


def test_the_helper_of_mint_testing_gives_what_the_command_line_takes(tmp_path):
    tiny = tiny_model(tmp_path, "small", family="qwen3", vocab_size=300)

    served = ModelRegistry([tiny.spec]).describe("small", "cpu", "float32")

    assert (served.name, served.architecture, served.vocab_size) == ("small", "qwen3", 300)
