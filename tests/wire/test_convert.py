"""JSON bodies of several SDK generations, and answers for those that take no protobuf."""

import json
import math

import numpy as np
import pytest

from mint.core.errors import ConfigError, LossInputError, ServerFaultError, UserError
from mint.core.model_input import OtherChunk
from mint.core.operations import PassResult, SampleResult, StepResult
from mint.core.optim import AdamParams
from mint.core.sampling import SampledSequence, SamplingParams, Stop, StopReason, TopK
from mint.wire import convert
from mint.wire import json_models as body


def sample_body(**fields) -> body.Sample:
    return body.Sample.model_validate(
        {"sampling_session_id": "s", "prompt": {"chunks": [{"tokens": [1, 2]}]}, **fields}
    )


def sampled(**fields):
    return convert.sample(sample_body(**fields), base_model="b", weights=None)


@pytest.mark.parametrize(
    "chunk",
    [{"tokens": [1, 2]}, {"tokens": [1, 2], "type": "encoded_text"}, {"tokens": [1, 2], "new": 1}],
    ids=["0.16", "0.38", "unknown key"],
)
def test_a_text_chunk_is_known_by_its_keys_or_its_type(chunk: dict):
    prompt = convert.model_input(body.ModelInputBody.model_validate({"chunks": [chunk]}), "prompt")

    assert prompt.tokens().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("chunk", "kind"),
    [
        ({"data": "aGk=", "format": "png"}, "an image"),
        ({"type": "image", "data": "aGk=", "format": "png"}, "an image"),
        ({"type": "image_asset_pointer", "location": "x", "format": "png"}, "an image"),
        ({"type": "dmel", "dmel": "aGk="}, "audio"),
    ],
)
def test_other_chunks_keep_their_kind(chunk: dict, kind: str):
    prompt = convert.model_input(body.ModelInputBody.model_validate({"chunks": [chunk]}), "prompt")

    assert prompt.chunks == (OtherChunk(kind),)


@pytest.mark.parametrize("params", [{}, None, {"adam_params": {}}, {"adam_params": None}])
def test_absent_and_null_adam_params_are_the_sdks_defaults(params: dict | None):
    request = body.OptimStep.model_validate({"model_id": "m", **(params or {})})

    assert convert.optim_step(request).params == AdamParams()


def test_another_optimizer_is_refused_by_name():
    request = body.OptimStep.model_validate(
        {"model_id": "m", "optimizer_params": {"type": "dimuon"}}
    )

    with pytest.raises(UserError, match="dimuon"):
        convert.optim_step(request)


@pytest.mark.parametrize(
    ("params", "stop"),
    [
        ({}, Stop()),
        ({"stop": None}, Stop()),
        ({"stop": "END"}, Stop(texts=("END",))),
        ({"stop": ["a", "b"]}, Stop(texts=("a", "b"))),
        ({"stop": [7, 8]}, Stop(token_ids=(7, 8))),
        ({"stop": []}, Stop(eos=False)),
        ({"stop_token_ids": [9]}, Stop(token_ids=(9,))),
        ({"stop": ["a"], "stop_token_ids": [9]}, Stop(texts=("a",), token_ids=(9,))),
        ({"stop": [], "stop_token_ids": [9]}, Stop(eos=False, token_ids=(9,))),
    ],
)
def test_each_form_of_stop_means_what_it_says(params: dict, stop: Stop):
    assert sampled(sampling_params=params).params == SamplingParams(stop=stop)


@pytest.mark.parametrize("stop", [["a", 1], [1.5], [None], [-1], [True, "a"]])
def test_a_stop_that_mixes_or_misspells_is_refused(stop: list):
    with pytest.raises(UserError, match="stop"):
        sampled(sampling_params={"stop": stop})


def targets(
    data: list, shape: list[int], crow: list | None = None, col: list | None = None, **more: str
) -> dict:
    sparse = {"sparse_crow_indices": crow, "sparse_col_indices": col}
    return {"data": data, "dtype": "int64", "shape": shape, **sparse, **more}


def test_ids_to_score_keep_the_layout_they_came_in():
    dense = sampled(target_prompt_logprobs=targets([5, -1, 7, 8], [2, 2])).prompt_targets
    sparse = sampled(target_prompt_logprobs=targets([5], [2, 9], [0, 0, 1], [4])).prompt_targets

    assert dense is not None
    assert sparse is not None
    assert (dense.values.tolist(), dense.shape, dense.crow) == ([5, -1, 7, 8], (2, 2), None)
    assert dense.starts().tolist() == [0, 2, 4]
    assert (sparse.values.tolist(), sparse.shape) == ([5], (2, 9))
    assert sparse.starts().tolist() == [0, 0, 1]
    assert sparse.col is not None
    assert sparse.col.tolist() == [4]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"num_samples": 0}, "num_samples=0"),
        ({"topk_prompt_logprobs": -1}, "topk_prompt_logprobs=-1"),
        ({"topk_sample_logprobs": 100_000}, "topk_sample_logprobs=100000"),
        ({"sampling_params": {"temperature": -1}}, "temperature=-1"),
        ({"sampling_params": {"top_p": 0}}, "top_p=0"),
        ({"sampling_params": {"seed": 1 << 70}}, "seed="),
        ({"target_prompt_logprobs": {"data": [1], "dtype": "int64"}}, r"\[len\(prompt\) - 1, k\]"),
        ({"target_prompt_logprobs": targets([1.5], [1, 1], dtype="float32")}, "int64"),
        ({"target_prompt_logprobs": targets([1, 2], [1, 1])}, "2 values"),
        ({"target_prompt_logprobs": targets([1 << 40], [1, 1])}, "does not fit"),
        ({"target_prompt_logprobs": targets([1], [1, 9], [0, 2], [3])}, "crow_indices"),
        ({"target_prompt_logprobs": targets([1], [1, 9], [0, 1], [9])}, "col_indices"),
        ({"prompt_alt_tokens_k": 129}, "prompt_alt_tokens_k"),
    ],
)
def test_what_cannot_be_sampled_is_refused_by_name(fields: dict, name: str):
    with pytest.raises(UserError, match=name):
        sampled(**fields)


def test_a_lora_rank_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="rank=0"):
        convert.lora_spec(body.LoraConfig(rank=0))


def test_rank_32_is_meant_where_none_is_given():
    request = body.CreateModel.model_validate(
        {"session_id": "s", "model_seq_id": 0, "base_model": "b", "lora_config": None}
    )

    assert convert.lora_spec(request.lora_config).rank == 32


def json_pass(tensor: dict, key: str = "forward_backward_input"):
    given = {
        "data": [
            {"model_input": {"chunks": [{"tokens": [1, 2]}]}, "loss_fn_inputs": {"weights": tensor}}
        ],
        "loss_fn": "cross_entropy",
        "loss_fn_config": None,
    }
    request = body.ForwardBackward.model_validate({"model_id": "m", "seq_id": 1, key: given})
    return convert.forward_backward(request, forward_only=key == "forward_input")


def test_a_json_pass_of_an_old_sdk_is_the_same_operation():
    operation = json_pass({"data": [0.5, 1], "dtype": "float32"}, "forward_input")

    [datum] = operation.data
    assert operation.forward_only
    assert datum.model_input.tokens().tolist() == [1, 2]
    assert datum.loss_fn_inputs["weights"].dtype == np.float32
    assert datum.loss_fn_inputs["weights"].tolist() == [0.5, 1.0]


def test_a_sparse_json_tensor_arrives_dense():
    [datum] = json_pass(
        {
            "data": [5, 6],
            "dtype": "int64",
            "shape": [2, 3],
            "sparse_crow_indices": [0, 1, 2],
            "sparse_col_indices": [2, 0],
        }
    ).data

    assert datum.loss_fn_inputs["weights"].tolist() == [[0, 0, 5], [6, 0, 0]]


@pytest.mark.parametrize(
    "tensor",
    [
        {"data": ["a"], "dtype": "float32"},
        {"data": [[1], [2]], "dtype": "float32"},
        {"data": [[1], [2, 3]], "dtype": "float32"},
        {"data": [1.5], "dtype": "int64"},
        {"data": [1 << 70], "dtype": "int64"},
        {"data": [1], "dtype": "complex"},
        {"data": [1, 2], "dtype": "int64", "shape": [3]},
        {"data": [1, 2], "dtype": "int64", "shape": [-1]},
    ],
)
def test_a_json_tensor_that_is_none_is_refused_by_name(tensor: dict):
    with pytest.raises(LossInputError, match=r"data\[0\]\.loss_fn_inputs\['weights'\]"):
        json_pass(tensor)


# -------------------------------------------------------------- answers

NAN = float("nan")


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_json_tensors_have_the_three_keys_old_sdks_accept():
    answer = convert.pass_to_json(
        PassResult(logprobs=(f32(-1, -2).reshape(1, 2),), metrics={"loss:sum": 3.0, "x:max": NAN})
    )

    [output] = answer["loss_fn_outputs"]
    assert output == {"logprobs": {"data": [-1.0, -2.0], "dtype": "float32", "shape": [1, 2]}}
    assert answer["metrics"] == {"loss:sum": 3.0}
    assert "error" not in answer


def test_metrics_that_json_cannot_carry_are_left_out():
    metrics = {"grad_norm": math.inf, "lr": 0.5}

    answer = convert.step_to_json(StepResult(metrics=metrics, weights_version=1))

    assert answer["metrics"] == {"lr": 0.5}


def test_samples_as_json_show_unscored_positions_as_null():
    result = SampleResult(
        sequences=(SampledSequence(np.array([4], "i4"), f32(-0.5), StopReason.STOP),),
        prompt_logprobs=f32(NAN, -1),
        topk_prompt_logprobs=TopK(np.array([[0], [7]], "i4"), f32(-99999, -1).reshape(2, 1)),
    )

    answer = json.loads(json.dumps(convert.sample_to_json(result), allow_nan=False))

    assert answer["sequences"] == [{"stop_reason": "stop", "tokens": [4], "logprobs": [-0.5]}]
    assert answer["prompt_logprobs"] == [None, -1.0]
    assert answer["topk_prompt_logprobs"] == [None, [[7, -1.0]]]


def test_diverged_logprobs_are_an_error_rather_than_broken_json():
    with pytest.raises(ServerFaultError, match="not finite"):
        convert.pass_to_json(PassResult(logprobs=(f32(NAN),), metrics={"loss:sum": 0.0}))
