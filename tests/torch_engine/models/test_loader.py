"""Loading gives a frozen module on the device and in the dtype asked for, or says what is wrong."""

import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from mint.core.errors import ConfigError
from mint.torch_engine.models.loader import load_module, load_tokenizer
from mint.torch_engine.models.registry import ModelFiles
from mint.torch_engine.models.tiny import build_tiny


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", torch.float16])
def test_a_module_is_frozen_and_of_the_dtype_asked_for(tmp_path, dtype):
    files = ModelFiles("tiny", build_tiny(tmp_path), "folder")

    module = load_module(files, dtype=dtype, device="cpu", attention="sdpa")

    wanted = dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype)
    assert {parameter.dtype for parameter in module.parameters()} == {wanted}
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert not module.training
    assert module.config._attn_implementation == "sdpa"


def test_a_missing_weight_is_an_error_and_not_a_random_number(tmp_path):
    folder = build_tiny(tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    with pytest.raises(ConfigError, match=r"layers\.1\.mlp\.up_proj\.weight missing"):
        load_module(ModelFiles("tiny", folder, "folder"), dtype="float32", device="cpu",
                    attention="sdpa")  # fmt: skip


def test_an_unknown_dtype_is_refused_by_name(tmp_path):
    files = ModelFiles("tiny", build_tiny(tmp_path), "folder")

    with pytest.raises(ConfigError, match="dtype='int8'"):
        load_module(files, dtype="int8", device="cpu", attention="sdpa")


def test_a_tokenizer_is_read_from_its_one_file(tmp_path):
    tokenizer = load_tokenizer(build_tiny(tmp_path))
    assert tokenizer.encode("A b").ids == [65, 32, 98]

    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"tokenizer\.json does not exist"):
        load_tokenizer(tmp_path)


def test_a_weight_of_another_shape_is_an_error(tmp_path):
    folder = build_tiny(tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"][:-1]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    with pytest.raises(ConfigError, match=r"model\.norm\.weight missing or of another shape"):
        load_module(ModelFiles("tiny", folder, "folder"), dtype="float32", device="cpu",
                    attention="sdpa")  # fmt: skip


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_module_has_the_weights_and_buffers_that_transformers_loads(tmp_path, family, tied):
    folder = build_tiny(tmp_path, family=family, tied=tied)

    ours = load_module(
        ModelFiles("tiny", folder, "folder"), dtype="float32", device="cpu", attention="sdpa"
    )
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    for kind in ("named_parameters", "named_buffers"):
        mine, upstreams = dict(getattr(ours, kind)()), dict(getattr(theirs, kind)())
        assert mine.keys() == upstreams.keys()
        assert all(torch.equal(mine[name], upstreams[name]) for name in mine)
    assert (ours.lm_head.weight is ours.model.embed_tokens.weight) == tied
