"""What our attention function would compute wrongly is refused by the name of its config field."""

import json

import pytest
from transformers import AutoConfig, Qwen2Config

from mint.core.errors import UnsupportedError
from mint.torch_engine.models.loader import check_supported, load_module
from mint.torch_engine.models.registry import ModelFiles
from mint.torch_engine.models.tiny import build_tiny

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4}
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 4}


@pytest.mark.parametrize(
    "config",
    [
        LLAMA,
        LLAMA | {"attention_bias": True, "quantization_config": None},
        LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        QWEN2 | {"use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 2},
        QWEN2 | {"use_sliding_window": True, "sliding_window": 32768, "max_window_layers": 4},
        QWEN2 | {"layer_types": ["full_attention"] * 4},
    ],
)
def test_plain_causal_models_are_accepted(config):
    check_supported(config)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (LLAMA | {"model_type": "gemma2"}, "model_type='gemma2'.*llama, qwen2, qwen3"),
        ({}, "model_type='None'"),
        (LLAMA | {"architectures": ["LlamaForSequenceClassification"]}, "architectures"),
        (LLAMA | {"auto_map": {"AutoModelForCausalLM": "modeling.Mine"}}, "auto_map"),
        (LLAMA | {"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        (LLAMA | {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
        (LLAMA | {"attention_chunk_size": 8192}, "attention_chunk_size"),
        (LLAMA | {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        (LLAMA | {"num_experts": 8}, "num_experts=8"),
        (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type='dynamic'"),
        (QWEN2 | {"use_sliding_window": True, "sliding_window": 64}, "use_sliding_window is true"),
        (
            QWEN2 | {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 3},
            "sliding_window=64",
        ),
        (QWEN2 | {"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
    ],
)
def test_a_refusal_names_the_model_and_the_field(config, named):
    with pytest.raises(UnsupportedError, match=named) as refused:
        check_supported(config, "acme/model")

    assert "acme/model" in str(refused.value)


def test_a_config_object_of_transformers_is_judged_like_the_file():
    check_supported(Qwen2Config(architectures=["Qwen2ForCausalLM"]))
    sliding = Qwen2Config(use_sliding_window=True, sliding_window=16, max_window_layers=1)
    with pytest.raises(UnsupportedError, match="sliding_attention"):
        check_supported(sliding)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_every_tested_family_passes_as_file_and_as_object(tmp_path, family):
    folder = build_tiny(tmp_path, family=family)

    check_supported(json.loads((folder / "config.json").read_text()))
    check_supported(AutoConfig.from_pretrained(folder))


def test_an_unsupported_model_is_refused_before_its_weights_are_read(tmp_path):
    folder = build_tiny(tmp_path, family="qwen2")
    config = json.loads((folder / "config.json").read_text())
    config |= {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"not read")

    with pytest.raises(UnsupportedError, match="sliding"):
        load_module(ModelFiles("m", folder, "folder"), dtype="float32", device="cpu",
                    attention="eager")  # fmt: skip
