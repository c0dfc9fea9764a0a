"""The table of losses, and what a datum must bring for each."""

import numpy as np
import pytest

from mint.core.datum import Datum
from mint.core.errors import LossInputError, UnsupportedError
from mint.core.losses import LOSSES, REFUSED, check, resolve
from mint.core.model_input import ModelInput, OtherChunk


def datum(**tensors: np.ndarray | None) -> Datum:
    length = 4
    inputs = {
        "target_tokens": np.arange(length),
        "logprobs": np.full(length, -1.0, np.float32),
        "advantages": np.ones(length, np.float32),
    }
    kept = {k: v for k, v in {**inputs, **tensors}.items() if v is not None}
    return Datum(ModelInput.from_ints(range(length)), kept)


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("cross_entropy", {}),
        ("importance_sampling", {}),
        ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
        ("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}),
        ("dro", {"beta": 0.01}),
        ("gspo", {"clip_low_threshold": 0.9997, "clip_high_threshold": 1.0004}),
    ],
)
def test_defaults_are_upstreams_or_the_papers(name, defaults):
    assert dict(resolve(name).config) == pytest.approx({**defaults, "temperature": 1.0})


def test_given_values_replace_defaults_and_leave_the_others():
    loss = resolve("ppo", {"clip_high_threshold": 1.5})
    assert (loss.config["clip_low_threshold"], loss.config["clip_high_threshold"]) == (0.8, 1.5)


@pytest.mark.parametrize("name", REFUSED)
def test_a_known_but_unoffered_loss_is_refused_with_its_reason(name):
    with pytest.raises(UnsupportedError) as refusal:
        resolve(name)
    assert REFUSED[name] in str(refusal.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, "0.5"])
def test_a_config_value_out_of_range_is_refused_by_name(value):
    with pytest.raises(LossInputError, match="clip_low_threshold"):
        resolve("ppo", {"clip_low_threshold": value})


@pytest.mark.parametrize("name", LOSSES)
def test_a_complete_datum_passes_and_more_than_is_needed_is_no_harm(name):
    extra = {"weights": np.ones(4, np.float32), "mask": np.ones(2)}
    check(datum(**extra), resolve(name), 0)


@pytest.mark.parametrize("name", [n for n in LOSSES if n != "cross_entropy"])
@pytest.mark.parametrize("missing", ["target_tokens", "logprobs", "advantages"])
def test_a_missing_tensor_is_named_with_its_datum(name, missing):
    with pytest.raises(LossInputError) as refusal:
        check(datum(**{missing: None}), resolve(name), 7)
    assert f"data[7].loss_fn_inputs['{missing}'] is missing" in str(refusal.value)


def test_soft_targets_need_a_weight_for_each():
    targets = np.zeros((4, 3), np.int64)
    with pytest.raises(LossInputError, match=r"weights.*missing"):
        check(datum(target_tokens=targets), resolve("cross_entropy"), 0)
    weights = np.ones(4, np.float32)
    with pytest.raises(LossInputError, match="one weight per target"):
        check(datum(target_tokens=targets, weights=weights), resolve("cross_entropy"), 0)
    weights = np.ones((4, 3), np.float32)
    check(datum(target_tokens=targets, weights=weights), resolve("cross_entropy"), 0)


def test_soft_targets_are_refused_where_the_loss_has_none():
    with pytest.raises(LossInputError, match=r"shape \[4, 3\]"):
        check(datum(target_tokens=np.zeros((4, 3), np.int64)), resolve("ppo"), 0)


def test_an_image_is_refused_by_name():
    mixed = ModelInput((*ModelInput.from_ints(range(4)).chunks, OtherChunk("image")))
    with pytest.raises(UnsupportedError, match="chunk 1 of the input is image"):
        check(Datum(mixed, datum().loss_fn_inputs), resolve("ppo"), 0)


def test_a_tensor_whose_meaning_is_not_published_is_refused_by_name():
    masked = datum(sequence_ratio_mask=np.ones(4, np.float32))
    with pytest.raises(UnsupportedError, match="sequence_ratio_mask"):
        check(masked, resolve("gspo"), 0)
    check(masked, resolve("ppo"), 0)
