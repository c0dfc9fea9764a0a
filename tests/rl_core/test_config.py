"""RLConfig: a run in a handful of numbers, from code or from the environment."""

from typing import Any

import pytest

from mint.recipe.exceptions import ConfigurationError
from mint.rl_core import RLConfig
from mint.rl_core.config import VARIABLES


def test_it_has_the_defaults_of_the_scripts_that_are_ported():
    assert RLConfig() == RLConfig(
        model="Qwen/Qwen3-0.6B", rank=16, steps=5, batch=8, group=4, lr=1e-4, max_tokens=16,
        temperature=1.0, log_path=None,
    )  # fmt: skip


def test_each_variable_sets_its_field():
    env = {
        "MINT_BASE_MODEL": "a/b", "MINT_LORA_RANK": "4", "MINT_RL_STEPS": "2", "MINT_RL_BATCH": "3",
        "MINT_RL_GROUP": "6", "MINT_RL_LR": "3e-4", "MINT_RL_MAX_TOKENS": "9",
        "MINT_RL_TEMPERATURE": "0.7",
    }  # fmt: skip

    assert set(env) == set(VARIABLES.values())
    assert RLConfig.from_env(env) == RLConfig("a/b", 4, 2, 3, 6, 3e-4, 9, 0.7)


def test_the_processes_own_environment_is_read_unless_one_is_given(monkeypatch: Any):
    monkeypatch.setenv("MINT_RL_STEPS", "7")

    assert RLConfig.from_env().steps == 7
    assert RLConfig.from_env({}).steps == 5


def test_a_default_of_the_script_gives_way_to_a_variable_and_an_empty_one_is_unset():
    env = {"MINT_RL_STEPS": "3", "MINT_RL_BATCH": ""}

    cfg = RLConfig.from_env(env, steps=50, batch=2, lr=1e-3)

    assert (cfg.steps, cfg.batch, cfg.lr) == (3, 2, 1e-3)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MINT_RL_STEPS", "many"), ("MINT_RL_STEPS", "0"), ("MINT_RL_STEPS", "1.5"),
        ("MINT_RL_GROUP", "1"), ("MINT_RL_LR", "-1"), ("MINT_RL_LR", "nan"), ("MINT_RL_LR", "inf"),
        ("MINT_RL_TEMPERATURE", "0"), ("MINT_LORA_RANK", "-4"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_be_is_refused_by_its_name(variable: str, text: str):
    with pytest.raises(ConfigurationError, match=rf"{variable}='{text}': give a"):
        RLConfig.from_env({variable: text})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0), ("steps", 2.0), ("steps", True), ("steps", "5"), ("batch", 0), ("group", 1),
        ("lr", 0), ("lr", float("nan")), ("lr", "1e-4"), ("max_tokens", 0), ("temperature", 0.0),
        ("rank", 0), ("model", ""), ("model", None),
    ],
)  # fmt: skip
def test_a_field_that_cannot_be_meant_is_refused_by_its_name(field: str, value: Any):
    with pytest.raises(ConfigurationError, match=rf"^{field}="):
        RLConfig(**{field: value})


def test_a_group_of_one_is_refused_with_the_reason():
    with pytest.raises(ConfigurationError, match="a single one teaches nothing"):
        RLConfig(group=1)
