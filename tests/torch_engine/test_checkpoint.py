"""Checkpoints load in peft, come back exactly, and are never half there."""

import json

import numpy as np
import peft
import pytest
import torch
from safetensors import SafetensorError
from tests.torch_engine.conftest import random_adapter, random_tokens
from tests.torch_engine.test_decoder import packed_logits
from transformers import AutoModelForCausalLM

from mint.core.errors import ServerFaultError, UserError
from mint.core.lora import LoraSpec
from mint.torch_engine import checkpoint
from mint.torch_engine.lora import Layout
from mint.torch_engine.optim import AdamState


def random_state(adapter):
    generator = torch.Generator().manual_seed(5)
    size = adapter.layout.size
    return AdamState(
        torch.randn(size, generator=generator), torch.rand(size, generator=generator), steps=7
    )


@pytest.mark.parametrize(
    ("family", "shape", "train"),
    [
        ("llama", {}, {}),
        ("llama", {"tied": False}, {}),
        ("qwen2", {}, {"train_unembed": False}),
        ("qwen3", {}, {"train_mlp": False}),
    ],
)
def test_peft_loads_a_checkpoint_as_it_is_and_computes_our_logits(
    tiny_of, tmp_path, family, shape, train
):
    tiny = tiny_of(family, **shape)
    adapter = random_adapter(tiny.decoder, rank=3, **train)
    checkpoint.save(tmp_path / "c", adapter, "some/model", random_state(adapter))
    tokens = random_tokens(np.random.default_rng(0), 11)[0]

    base = AutoModelForCausalLM.from_pretrained(tiny.folder, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, str(tmp_path / "c")).eval()
    with torch.no_grad():
        expected = theirs(input_ids=torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]

    [ours] = packed_logits(tiny.decoder, adapter, [tokens])
    [without] = packed_logits(tiny.decoder, None, [tokens])
    assert (ours - expected).abs().max() <= 1e-4
    assert (ours - without).abs().max() > 1e-2


def test_weights_and_optimizer_come_back_bit_for_bit(tiny, tmp_path):
    adapter = random_adapter(tiny.decoder)
    adapter.version = 4
    state = random_state(adapter)
    files = checkpoint.save(tmp_path / "c", adapter, "some/model", state)

    manifest = checkpoint.read_manifest(tmp_path / "c")
    again = checkpoint.load_optimizer(tmp_path / "c", adapter.layout)

    assert (manifest.base_model, manifest.lora) == ("some/model", adapter.layout.spec)
    assert (manifest.weights_version, manifest.optimizer_steps) == (4, 7)
    assert torch.equal(checkpoint.load_weights(tmp_path / "c", adapter.layout), adapter.flat)
    assert again is not None
    assert torch.equal(again.exp_avg, state.exp_avg)
    assert torch.equal(again.exp_avg_sq, state.exp_avg_sq)
    assert {name: size for name, (size, _) in files.items()} == {
        path.name: path.stat().st_size for path in (tmp_path / "c").iterdir()
    }


def test_a_sampler_checkpoint_has_no_optimizer(tiny, tmp_path):
    adapter = random_adapter(tiny.decoder)
    checkpoint.save(tmp_path / "c", adapter, "some/model", None)
    assert checkpoint.load_optimizer(tmp_path / "c", adapter.layout) is None


def test_a_changed_byte_is_noticed(tiny, tmp_path):
    adapter = random_adapter(tiny.decoder)
    checkpoint.save(tmp_path / "c", adapter, "some/model", None)
    path = tmp_path / "c" / "adapter_model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    for read in (checkpoint.load_weights, checkpoint.MappedPairs):
        with pytest.raises(ServerFaultError, match=r"adapter_model.safetensors is damaged"):
            read(tmp_path / "c", adapter.layout)


def test_each_linear_can_be_read_by_itself(tiny, tmp_path):
    adapter = random_adapter(tiny.decoder)
    checkpoint.save(tmp_path / "c", adapter, "some/model", None)

    mapped = checkpoint.MappedPairs(tmp_path / "c", adapter.layout)

    assert list(mapped) == list(adapter.pairs)
    for name, pair in adapter.pairs.items():
        assert all(map(torch.equal, mapped[name], pair))
    assert mapped.get("model.layers.9.mlp.up_proj") is None


@pytest.mark.parametrize("read", [checkpoint.load_weights, checkpoint.MappedPairs])
@pytest.mark.parametrize("other", [{"rank": 5}, {"train_mlp": False}])
def test_a_checkpoint_of_another_shape_is_refused(tiny, tmp_path, other, read):
    adapter = random_adapter(tiny.decoder)
    checkpoint.save(tmp_path / "c", adapter, "some/model", None)
    layout = Layout.of(LoraSpec(**{"rank": 4, **other}), tiny.decoder.targets)
    with pytest.raises(UserError, match="from the checkpoint"):
        read(tmp_path / "c", layout)


@pytest.mark.parametrize(("writes", "error"), [("_sync", OSError), ("save_file", SafetensorError)])
def test_a_save_that_fails_leaves_nothing(tiny, tmp_path, monkeypatch, writes, error):
    def full(*_: object) -> None:
        raise error("no space left on device")

    monkeypatch.setattr(checkpoint, writes, full)
    with pytest.raises(ServerFaultError, match="no space left"):
        checkpoint.save(tmp_path / "c", random_adapter(tiny.decoder), "some/model", None)
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_names_the_base_model_for_peft_too(tiny, tmp_path):
    checkpoint.save(tmp_path / "c", random_adapter(tiny.decoder), "some/model", None)
    config = json.loads((tmp_path / "c" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "some/model"
    assert config["peft_type"] == "LORA"
