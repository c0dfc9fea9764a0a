"""train_config: the recipes' own config, from an adapter and prompts."""

from pathlib import Path
from typing import Any

import pytest
from tests.recipe.rl import players
from tests.rl_core.world import MODEL, TOKENIZER, SaysYes, advantages, rows, service

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.train import Config, main
from mint.rl_core import AdapterDatasetBuilder, train_config

NEEDED: dict[str, Any] = {
    "model_name": MODEL, "learning_rate": 1e-4, "max_tokens": 8, "batch_size": 2, "group_size": 2,
}  # fmt: skip


def test_fields_go_where_they_belong_and_shared_ones_to_both():
    adapter = SaysYes()

    config = train_config(adapter, ["a"], **NEEDED, renderer_name="qwen3", seed=4, lora_rank=8)

    assert isinstance(config, Config)
    assert (config.model_name, config.renderer_name, config.lora_rank) == (MODEL, "qwen3", 8)
    data = config.dataset_builder
    assert isinstance(data, AdapterDatasetBuilder)
    assert (data.adapter, data.prompts) == (adapter, ["a"])
    assert (data.model_name, data.renderer_name, data.seed) == (MODEL, "qwen3", 4)
    assert (data.batch_size, data.group_size) == (2, 2)


def test_the_adapter_knows_the_model_of_its_run(tmp_path: Path):
    for rank, fields in ((8, {"lora_rank": 8}), (32, {})):
        adapter = SaysYes()
        config = train_config(
            adapter, ["a"], **NEEDED, **fields, service_client=service(),
            log_path=str(tmp_path / str(rank)), renderer_name="qwen3_instruct",
        )  # fmt: skip

        players.run(main(config))

        info = adapter.get_model_info()
        assert (info.model_name, info.lora_rank, info.renderer_name) == (
            MODEL, rank, "qwen3_instruct",
        )  # fmt: skip
        assert adapter.get_tokenizer() is TOKENIZER


def test_a_field_that_there_is_not_is_refused_with_those_that_are_near():
    with pytest.raises(
        ConfigurationError,
        match=r"has no learningrate \(did you mean learning_rate\?\), wibble\. It takes",
    ):
        train_config(SaysYes(), ["a"], **NEEDED, learningrate=1, wibble=2)


def test_all_missing_fields_are_named_at_once_with_an_example():
    with pytest.raises(
        ConfigurationError, match="needs model_name, max_tokens, group_size as well"
    ):
        train_config(SaysYes(), ["a"], learning_rate=1e-4, batch_size=4)


@pytest.mark.parametrize("name", ["adapter", "dataset_builder"])
def test_what_train_config_makes_itself_is_no_field(name: str):
    with pytest.raises((ConfigurationError, TypeError), match=name):
        train_config(SaysYes(), ["a"], **NEEDED, **{name: None})


def test_it_trains(tmp_path: Path):
    fake = service("yes", "no")
    config = train_config(
        SaysYes(), ["a", "b", "c"], **NEEDED, service_client=fake, log_path=str(tmp_path),
        test_prompts=["d"], eval_every=1,
    )  # fmt: skip

    players.run(main(config))

    first, second, last = rows(tmp_path)
    assert (first["batch/groups_requested"], second["batch/groups_requested"]) == (2, 1)
    assert [sorted(step) for step in advantages(fake)] == [[-0.5, -0.5, 0.5, 0.5], [-0.5, 0.5]]
    assert first["env/all/length"] == 15.5
    assert first["env/all/adapter_error"] == 0.0
    assert "test/env/all/reward/total" in last
