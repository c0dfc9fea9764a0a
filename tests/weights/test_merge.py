"""A merged model is the base model with its adapter, to transformers as to peft."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.torch_engine.test_adapter_import import written_by_peft
from transformers import AutoModelForCausalLM

from mint.core.errors import UnsupportedError, UserError
from mint.testing import tiny_model
from mint.weights.logprobs import logprobs
from mint.weights.merge import dtypes_of, merge

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's remarks on tied heads

PROMPTS = [[1, 5, 9, 200, 33], [7, 7, 250, 0]]
SOME = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "down_proj"]}
HEAD = {"r": 3, "lora_alpha": 7, "target_modules": ["k_proj", "lm_head"]}


@pytest.fixture
def base(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tiny_model(tmp_path, "base", **getattr(request, "param", {})).folder


def merged(base: Path, adapter: Path, **options) -> Path:
    out = base.with_name("merged")
    out.mkdir()
    merge(base, adapter, out, **options)
    return out


def largest_gap(one: list[list[float]], other: list[list[float]]) -> float:
    return max(
        abs(a - b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)
    )


@pytest.mark.parametrize(
    ("base", "config"),
    [
        ({}, SOME),
        ({"family": "qwen2"}, SOME),
        ({"family": "qwen3", "tied": False}, HEAD),
        ({"tied": True}, HEAD),
    ],
    indirect=["base"],
)
def test_a_merged_model_computes_what_peft_computes(base, config):
    adapter = written_by_peft(base, base.with_name("adapter"), **config)

    folder = merged(base, adapter)

    alone = logprobs(folder, PROMPTS)
    assert largest_gap(alone, logprobs(base, PROMPTS, adapter)) <= 1e-4
    assert largest_gap(alone, logprobs(base, PROMPTS)) > 1e-2
    assert {path.name for path in base.iterdir()} == {path.name for path in folder.iterdir()}


def test_a_tied_head_gets_weights_of_its_own_only_if_the_adapter_extends_it(base):
    some = merged(base, written_by_peft(base, base.with_name("some"), **SOME))
    assert "lm_head.weight" not in load_file(some / "model.safetensors")
    some.rename(base.with_name("first"))

    head = merged(base, written_by_peft(base, base.with_name("head"), **HEAD))
    tensors = load_file(head / "model.safetensors")
    assert json.loads((head / "config.json").read_text())["tie_word_embeddings"] is False
    before = load_file(base / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(tensors["model.embed_tokens.weight"], before)
    assert not torch.equal(tensors["lm_head.weight"], before)


def test_a_model_in_several_files_keeps_them_and_its_index(base):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    sharded = base.with_name("sharded")
    model.save_pretrained(sharded, max_shard_size="40KB")
    adapter = written_by_peft(base, base.with_name("adapter"), **HEAD)

    folder = merged(sharded, adapter)

    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    assert "lm_head.weight" in index["weight_map"]
    assert largest_gap(logprobs(folder, PROMPTS), logprobs(base, PROMPTS, adapter)) <= 1e-4


def test_the_dtype_is_the_base_models_unless_another_is_asked_for(base):
    adapter = written_by_peft(base, base.with_name("adapter"), dtype=torch.bfloat16, **SOME)

    assert dtypes_of(merged(base, adapter)) == ["float32"]
    base.with_name("merged").rename(base.with_name("first"))
    folder = merged(base, adapter, dtype=torch.bfloat16)

    assert dtypes_of(folder) == ["bfloat16"]
    assert json.loads((folder / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_an_adapter_of_another_model_is_refused(base):
    other = tiny_model(base.parent, "other", layers=3, hidden=16).folder
    adapter = written_by_peft(other, base.with_name("adapter"), **SOME)

    with pytest.raises(UserError, match="right base model"):
        merged(base, adapter)


def test_a_lora_of_another_kind_is_refused_by_its_field(base):
    adapter = written_by_peft(base, base.with_name("adapter"), **SOME, use_dora=True)

    with pytest.raises(UnsupportedError, match="use_dora"):
        merged(base, adapter)
