"""An adapter that PEFT wrote computes here what it computes in PEFT, or is refused by name."""

import json
from pathlib import Path

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.torch_engine.conftest import random_tokens
from tests.torch_engine.test_decoder import packed_logits
from transformers import AutoModelForCausalLM

from mint.core.errors import UnsupportedError, UserError
from mint.core.ids import ModelId
from mint.core.operations import ImportAdapter
from mint.torch_engine import checkpoint
from mint.torch_engine.adapter_import import import_adapter, read_adapter

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's remarks on tied heads

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


def written_by_peft(base: Path, folder: Path, *, dtype=torch.float32, **config) -> Path:
    """A folder with an adapter that changes the logits, as peft saves it."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **config))
    generator = torch.Generator().manual_seed(3)
    for name, weight in adapted.named_parameters():
        if ".lora_" in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.1
    adapted.to(dtype).save_pretrained(str(folder))
    return folder


def logits_in_peft(base: Path, adapter: Path, tokens: np.ndarray) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(model, str(adapter)).eval()
    with torch.no_grad():
        return theirs(input_ids=torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        ({}, {"r": 4, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}),
        ({}, {"r": 3, "lora_alpha": 32, "target_modules": [*ATTENTION, "down_proj"]}),
        ({}, {"r": 2, "lora_alpha": 5, "target_modules": ["lm_head"]}),
        ({"tied": False}, {"r": 8, "lora_alpha": 4, "target_modules": ["up_proj", "lm_head"]}),
        ({}, {"r": 4, "lora_alpha": 8, "target_modules": ATTENTION, "layers_to_transform": [1]}),
        ({}, {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "dtype": torch.bfloat16}),
    ],
)
def test_an_adapter_of_pefts_computes_what_it_computes_there(tiny_of, tmp_path, shape, config):
    tiny = tiny_of(**shape)
    source = written_by_peft(tiny.folder, tmp_path / "peft", **config)
    tokens = random_tokens(np.random.default_rng(0), 11)[0]

    adapter = read_adapter(source, tiny.decoder, "run")

    assert (adapter.layout.spec.rank, adapter.layout.spec.alpha) == (
        config["r"],
        config["lora_alpha"],
    )
    [ours] = packed_logits(tiny.decoder, adapter, [tokens])
    [without] = packed_logits(tiny.decoder, None, [tokens])
    expected = logits_in_peft(tiny.folder, source, tokens)
    assert (ours - expected).abs().max() <= 1e-4
    assert (ours - without).abs().max() > 1e-2


def test_a_linear_that_was_left_out_adds_nothing_and_can_still_learn(tiny, tmp_path):
    source = written_by_peft(tiny.folder, tmp_path / "p", r=4, lora_alpha=8,
                             target_modules=["q_proj"])  # fmt: skip
    adapter = read_adapter(source, tiny.decoder, "run")

    a, b = adapter.pairs["model.layers.0.self_attn.k_proj"]
    assert a.abs().max() > 0
    assert b.abs().max() == 0
    assert {t.name.rpartition(".")[2] for t in adapter.layout.targets} == set(ATTENTION)


def test_the_checkpoint_it_becomes_loads_like_one_that_was_trained_here(tiny, tmp_path):
    source = written_by_peft(tiny.folder, tmp_path / "p", r=4, lora_alpha=8,
                             target_modules=["q_proj"])  # fmt: skip
    operation = ImportAdapter(
        model_id=ModelId("s:train:0"), base_model="tiny",
        path="tinker://s:train:0/sampler_weights/a", upload="u",
    )  # fmt: skip
    made = import_adapter(operation, tiny.decoder, source, tmp_path / "c")

    manifest = checkpoint.read_manifest(tmp_path / "c")
    assert (manifest.base_model, manifest.lora) == ("tiny", made.lora)
    assert manifest.optimizer_steps is None
    assert set(made.files) == {path.name for path in (tmp_path / "c").iterdir()}
    peft.PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tiny.folder), str(tmp_path / "c")
    )


def changed(folder: Path, change) -> Path:
    """The folder with its tensors changed in place."""
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    return folder


Q = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        (lambda t: t.pop(Q), UserError, "only one of A and B of model.layers.0.self_attn.q_proj"),
        (lambda t: t.update({Q: t[Q][:, :3].contiguous()}), UserError, r"has shape \[4, 3\]"),
        (lambda t: t[Q].fill_(float("nan")), UserError, "not finite"),
        (lambda t: t.update({"base_model.model.x.lora_A.weight": t[Q].clone()}),
         UnsupportedError, "base_model.model.x.lora_A.weight.*q_proj"),
        (lambda t: t.clear(), UserError, "no A and B"),
        (lambda t: t.update({"base_model.model.lm_head.weight": torch.zeros(259, 32)}),
         UnsupportedError, "lm_head.weight, which differs"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused_by_name(tiny, tmp_path, change, error, named):
    source = written_by_peft(tiny.folder, tmp_path / "p", r=4, lora_alpha=8,
                             target_modules=["q_proj"])  # fmt: skip
    with pytest.raises(error, match=named):
        read_adapter(changed(source, change), tiny.decoder, "run")


def test_an_embedding_adapter_is_refused_by_name(tiny, tmp_path):
    source = written_by_peft(tiny.folder, tmp_path / "p", r=4, lora_alpha=8,
                             target_modules=["embed_tokens"])  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"embed_tokens\.lora_embedding_A"):
        read_adapter(source, tiny.decoder, "run")


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"\x08" + bytes(7) + b"{}      "])
def test_a_file_that_is_no_safetensors_is_the_callers_mistake(tiny, tmp_path, content):
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8})
    )
    (tmp_path / "adapter_model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"adapter_model.safetensors"):
        read_adapter(tmp_path, tiny.decoder, "run")
