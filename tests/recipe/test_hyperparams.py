"""Learning rates and adapter sizes, from a config.json at hand."""

import json
from pathlib import Path

import pytest

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.hyperparam_utils import (
    get_lora_lr_over_full_finetune_lr,
    get_lora_param_count,
    get_lr,
)

SHAPE = {
    "hidden_size": 2000, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 10,
    "num_key_value_heads": 2, "intermediate_size": 7, "vocab_size": 100,
}  # fmt: skip


def model(tmp_path: Path, name: str, **shape) -> str:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    (folder / "config.json").write_text(json.dumps({**SHAPE, **shape}))
    return str(folder)


def test_at_the_reference_width_the_rate_is_the_base_rate(tmp_path: Path):
    assert get_lr(model(tmp_path, "qwen3-x"), is_lora=False) == pytest.approx(5e-5)
    assert get_lr(model(tmp_path, "llama-x")) == pytest.approx(5e-4)
    assert get_lora_lr_over_full_finetune_lr("any") == 10


def test_a_wider_model_takes_a_smaller_rate_by_its_familys_exponent(tmp_path: Path):
    assert get_lr(model(tmp_path, "llama-w", hidden_size=8000)) == pytest.approx(5e-4 * 0.25**0.781)
    assert get_lr(model(tmp_path, "qwen3-w", hidden_size=8000)) == pytest.approx(
        5e-4 * 0.25**0.0775
    )


def test_for_other_families_the_rule_is_not_pretended_to_hold(tmp_path: Path):
    with pytest.raises(NotImplementedError, match="Qwen and Llama"):
        get_lr(model(tmp_path, "frog-x"))


def test_parameters_are_rank_times_inputs_and_outputs_of_each_matrix(tmp_path: Path):
    name = model(tmp_path, "qwen3-x")
    # q and o: 2000 + 40 each; k and v: 2000 + 20 each; three of 2000 + 7; the head: 2000 + 100
    attention, mlp, head = 2 * 2040 + 2 * 2020, 3 * 2007, 2100

    def count(**parts: bool) -> int:
        only = {"train_mlp": False, "train_attn": False, "train_unembed": False, **parts}
        return get_lora_param_count(name, 8, **only)

    assert count(train_attn=True) == 8 * 3 * attention
    assert count(train_mlp=True) == 8 * 3 * mlp
    assert count(train_unembed=True) == 8 * head
    assert get_lora_param_count(name) == 32 * (3 * (attention + mlp) + head)


def test_without_head_sizes_in_the_config_heads_share_the_width(tmp_path: Path):
    folder = Path(model(tmp_path, "qwen3-x"))
    (folder / "config.json").write_text(
        json.dumps({k: v for k, v in SHAPE.items() if k not in ("head_dim", "num_key_value_heads")})
    )
    only = {"train_mlp": False, "train_unembed": False}
    assert get_lora_param_count(str(folder), 1, **only) == 3 * 4 * 4000


def test_a_text_model_inside_another_is_read_there(tmp_path: Path):
    folder = Path(model(tmp_path, "qwen3-x"))
    (folder / "config.json").write_text(json.dumps({"text_config": SHAPE}))
    assert get_lr(str(folder), is_lora=False) == pytest.approx(5e-5)


def test_experts_are_not_counted_as_if_they_were_one_model(tmp_path: Path):
    with pytest.raises(NotImplementedError, match="mixture of experts"):
        get_lora_param_count(model(tmp_path, "qwen3-moe", num_experts=8))


def test_a_model_of_unknown_size_says_how_to_make_it_known(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("MINT_EMBEDDED", "0")
    monkeypatch.setenv("MINT_HOME", str(tmp_path))
    for name in ("MINT_BASE_URL", "MINT_API_KEY", "TINKER_BASE_URL", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"Qwen/Qwen3-0\.6B.*MINT_BASE_URL"):
        get_lr("Qwen/Qwen3-0.6B")
