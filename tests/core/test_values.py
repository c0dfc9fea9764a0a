"""Values refuse contradictions when they are built."""

import numpy as np
import pytest

from mint.core.checkpoints import CheckpointKind, CheckpointRef, check_name
from mint.core.errors import ConfigError, UserError
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput, check_tokens
from mint.core.sampling import SamplingParams, Stop


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": 1 << 31}, "max_tokens=2147483648"),
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_k": -2}, "top_k=-2"),
        ({"top_k": 1 << 70}, "top_k=1180591620717411303424"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.1}, "top_p=1.1"),
        ({"stop": Stop(texts=("a", ""))}, "empty string"),
    ],
)
def test_sampling_params_out_of_range_are_refused_by_name(fields, named):
    with pytest.raises(ConfigError) as refusal:
        SamplingParams(**fields)
    assert named in str(refusal.value)


@pytest.mark.parametrize("rank", [0, -1, 4096])
def test_a_rank_out_of_range_is_refused(rank):
    with pytest.raises(ConfigError, match=f"rank={rank}"):
        LoraSpec(rank=rank)


def test_an_adapter_that_trains_nothing_is_refused():
    with pytest.raises(ConfigError, match="nothing would be trained"):
        LoraSpec(train_attn=False, train_mlp=False, train_unembed=False)


@pytest.mark.parametrize("scheme", ["tinker", "mint"])
def test_a_checkpoint_path_is_read_in_either_scheme_and_written_in_one(scheme):
    ref = CheckpointRef.parse(f"{scheme}://s1:train:0/weights/step-7")
    assert ref == CheckpointRef("s1:train:0", CheckpointKind.TRAINING, "step-7")
    assert str(ref) == "tinker://s1:train:0/weights/step-7"


@pytest.mark.parametrize(
    "text",
    ["step-7", "tinker://m/other/x", "tinker://m/weights/a/b", "http://m/weights/a", "tinker://"],
)
def test_anything_else_is_no_checkpoint_path(text):
    with pytest.raises(UserError, match="is not a checkpoint path"):
        CheckpointRef.parse(text)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "ü", "x" * 201])
def test_a_name_that_cannot_be_one_path_segment_is_refused(name):
    with pytest.raises(UserError, match="checkpoint name"):
        check_name(name)


def test_chunks_are_read_in_order():
    both = ModelInput((*ModelInput.from_ints([1, 2]).chunks, *ModelInput.from_ints([3]).chunks))
    assert both.tokens().tolist() == [1, 2, 3]
    assert ModelInput(()).tokens().tolist() == []


@pytest.mark.parametrize("bad", [-1, 10])
def test_a_token_outside_the_vocabulary_is_named_with_its_place(bad):
    with pytest.raises(UserError) as refusal:
        check_tokens(np.array([3, bad]), vocab_size=10, where="prompt")
    assert f"prompt[1] is token id {bad}" in str(refusal.value)
    assert "0 to 9" in str(refusal.value)
