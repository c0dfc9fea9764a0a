"""Which LoRAs of PEFT's are ours too; the rest is refused by the name of the field."""

import peft
import pytest

from mint.core.errors import UnsupportedError, UserError
from mint.core.peft import read_adapter_config

PLAIN = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "base_model_name_or_path": "acme/base"}


def test_rank_alpha_and_base_model_are_read():
    config = read_adapter_config(PLAIN)

    assert (config.rank, config.alpha, config.base_model) == (8, 16.0, "acme/base")


def test_the_config_that_peft_writes_today_is_taken():
    written = peft.LoraConfig(r=4, lora_alpha=3, target_modules=["q_proj"]).to_dict()

    assert read_adapter_config(written).rank == 4


def test_patterns_that_say_nothing_new_are_taken():
    read_adapter_config(PLAIN | {"rank_pattern": {"q_proj": 8}, "alpha_pattern": {}})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peft_type", "IA3"),
        ("use_dora", True),
        ("use_rslora", True),
        ("modules_to_save", ["lm_head"]),
        ("bias", "lora_only"),
        ("lora_bias", True),
        ("rank_pattern", {"q_proj": 4}),
        ("alpha_pattern", {"q_proj": 4}),
        ("layer_replication", [[0, 2]]),
        ("trainable_token_indices", [7]),
        ("init_lora_weights", "pissa_niter_4"),
    ],
)
def test_a_lora_of_another_kind_is_refused_by_its_field(field, value):
    with pytest.raises(UnsupportedError, match=field):
        read_adapter_config(PLAIN | {field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [("r", 0), ("r", 2.5), ("r", True), ("r", None), ("lora_alpha", 0), ("lora_alpha", "16"),
     ("lora_alpha", float("nan"))],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused_by_name(field, value):
    with pytest.raises(UserError, match=field):
        read_adapter_config(PLAIN | {field: value})
