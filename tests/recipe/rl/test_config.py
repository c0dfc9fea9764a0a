"""A config is refused for what contradicts itself, by the field that has to change."""

from typing import Any

import pytest

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.config import (
    AsyncConfig,
    Config,
    KLReferenceConfig,
    StreamMinibatchConfig,
    validate,
)
from mint.recipe.rl.types import RLDatasetBuilder


def config(**fields: Any) -> Config:
    required = {
        "learning_rate": 1e-5,
        "dataset_builder": RLDatasetBuilder(),
        "model_name": "test/tiny",
        "max_tokens": 64,
    }
    return Config(**{**required, **fields})


def test_a_config_of_the_four_required_fields_is_complete():
    plain = config()

    validate(plain)

    assert plain.recipe_name == "mint.recipe.rl"
    assert plain.update_loss_fn == "importance_sampling"


def test_two_configs_without_a_folder_get_different_ones():
    assert config().log_path != config().log_path


def test_a_home_folder_is_spelled_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/somebody")

    assert config(log_path="~/runs/one").log_path == "/home/somebody/runs/one"


def test_an_unknown_field_is_an_error_of_the_config():
    with pytest.raises(TypeError, match="learning_rat"):
        config(learning_rat=1e-5)


REFERENCE = KLReferenceConfig(base_model="test/tiny")
STREAM = StreamMinibatchConfig(groups_per_batch=8, num_minibatches=2)
ASYNC = AsyncConfig(max_steps_off_policy=1, groups_per_batch=8)
ASYNC_CISPO = AsyncConfig(max_steps_off_policy=1, groups_per_batch=8, loss_fn="cispo")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"kl_penalty_coef": 0.02},
            r"kl_reference_config=KLReferenceConfig\(base_model='test/tiny'",
        ),
        ({"kl_penalty_coef": -0.1, "kl_reference_config": REFERENCE}, "kl_penalty_coef=-0.1"),
        ({"async_config": ASYNC, "stream_minibatch_config": STREAM}, "one schedule"),
        ({"stream_minibatch_config": STREAM, "num_substeps": 3}, r"3 \* 2 = 6"),
        ({"num_epochs": 0}, "num_epochs=0"),
        ({"max_steps": -1}, "max_steps=-1"),
        ({"temperature": -0.5}, "temperature=-0.5"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_concurrent_requests": 0}, "max_concurrent_requests=0"),
        ({"kl_discount_factor": 1.5}, "kl_discount_factor=1.5"),
        (
            {"loss_fn": "ppo", "async_config": ASYNC_CISPO},
            "loss_fn='ppo' and async_config.loss_fn='cispo'",
        ),
        (
            {
                "loss_fn": "stable_reinforce",
                "kl_penalty_coef": 0.1,
                "kl_discount_factor": 0.5,
                "kl_reference_config": REFERENCE,
            },
            "kl_discount_factor=0",
        ),
    ],
)
def test_a_contradiction_is_refused_by_its_field(fields: dict[str, Any], says: str):
    with pytest.raises(ConfigurationError, match=says):
        validate(config(**fields))


def test_the_loss_of_the_asynchronous_schedule_is_the_configs_unless_it_has_its_own():
    assert config(loss_fn="ppo", async_config=ASYNC).update_loss_fn == "ppo"
    assert config(async_config=ASYNC_CISPO).update_loss_fn == "cispo"


def test_a_batch_that_divides_into_equal_minibatches_is_accepted():
    validate(config(stream_minibatch_config=STREAM, num_substeps=4))
