"""What a model's folder tells without its weights being loaded."""

import json

import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from mint.core.errors import ConfigError
from mint.torch_engine.models.files import (
    check_whole,
    count_parameters,
    eos_token_ids,
    missing_parts,
)
from mint.torch_engine.models.tiny import build_tiny


@pytest.mark.parametrize("tied", [True, False])
def test_the_headers_count_as_many_parameters_as_the_loaded_module(tmp_path, tied):
    folder = build_tiny(tmp_path, family="qwen2", tied=tied)

    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    assert count_parameters(folder) == sum(weight.numel() for weight in module.parameters())


def test_a_tied_head_that_is_stored_all_the_same_counts_once(tmp_path):
    folder = build_tiny(tmp_path, tied=True)
    before = count_parameters(folder)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    save_file(weights, folder / "model.safetensors")

    assert count_parameters(folder) == before


def test_sharded_weights_count_and_miss_like_one_file(tmp_path):
    folder = build_tiny(tmp_path)
    before = count_parameters(folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"model-{1 + i % 2}.safetensors" for i, name in enumerate(weights)}
    for shard in set(places.values()):
        save_file({n: w for n, w in weights.items() if places[n] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    assert count_parameters(folder) == before
    (folder / "model-2.safetensors").unlink()
    assert missing_parts(folder) == ["model-2.safetensors"]


def test_a_folder_that_lacks_parts_is_refused_with_all_of_them_named(tmp_path):
    folder = build_tiny(tmp_path)
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(ConfigError, match=r"tokenizer\.json.*safetensors only"):
        check_whole(folder)


def test_a_broken_config_is_refused_with_its_path(tmp_path):
    folder = build_tiny(tmp_path)
    (folder / "config.json").write_text("{")

    with pytest.raises(ConfigError, match=r"config\.json is not JSON"):
        count_parameters(folder)


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [(5, None, (5,)), (5, [7, 5], (5, 7)), (None, 7, (7,)), (None, None, ())],
)
def test_end_tokens_are_gathered_from_both_files(tmp_path, config, generation, expected):
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": config}))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))

    assert eos_token_ids(tmp_path) == expected
