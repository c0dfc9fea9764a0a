"""Operations and results survive the way into a row and back."""

from dataclasses import asdict, fields, is_dataclass
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
import pytest

from mint.core.datum import Datum, ReverseKLDatum
from mint.core.ids import ModelId, SamplerId
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput, OtherChunk
from mint.core.operations import (
    CreateModel,
    CreateModelFrom,
    DiscardGradients,
    Done,
    ForwardBackward,
    ImportAdapter,
    Imported,
    InterpolateCheckpoints,
    Interpolated,
    LoadWeights,
    ModelReady,
    Operation,
    OptimStep,
    PassResult,
    PinSampler,
    ReleaseSampler,
    ResolveModel,
    Result,
    ReverseKL,
    ReverseKLResult,
    Sample,
    SampleResult,
    Saved,
    SaveWeights,
    StepResult,
    UnloadModel,
)
from mint.core.optim import AdamParams
from mint.core.sampling import (
    AltTokens,
    Cells,
    SampledSequence,
    SamplingParams,
    Stop,
    StopReason,
    TopK,
)
from mint.wire import payloads

M = ModelId("s:train:0")
S = SamplerId("s:sample:0")

OPERATIONS: list[Operation] = [
    CreateModel(model_id=M, base_model="org/tiny", lora=LoraSpec(rank=4, seed=7, train_mlp=False)),
    CreateModelFrom(model_id=M, path="tinker://s:train:1/weights/a", with_optimizer=True),
    ForwardBackward(
        model_id=M,
        data=(
            Datum(
                ModelInput.from_ints([1, 2, 3]),
                {
                    "target_tokens": np.array([2, 3, 4], dtype=np.int64),
                    "weights": np.array([0.0, 1.5, -2.0], dtype=np.float32),
                },
            ),
            Datum(
                ModelInput.from_ints([5, 6]),
                {"target_tokens": np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int64)},
            ),
        ),
        loss_fn="cross_entropy",
        loss_fn_config={"temperature": 0.7, "note": "text"},
        forward_only=True,
    ),
    OptimStep(model_id=M, params=AdamParams(learning_rate=0.3, grad_clip_norm=1.0)),
    DiscardGradients(model_id=M, reason="a pass failed"),
    SaveWeights(
        model_id=M, path="tinker://s:train:0/weights/a", ttl_seconds=9, user_metadata={"k": "v"}
    ),
    LoadWeights(model_id=M, path="tinker://s:train:0/weights/a", with_optimizer=False),
    PinSampler(model_id=M, sampler_id=S),
    Sample(
        sampler_id=S,
        base_model="org/tiny",
        weights=None,
        prompt=ModelInput((*ModelInput.from_ints([9, 8]).chunks, OtherChunk("an image"))),
        num_samples=3,
        params=SamplingParams(
            max_tokens=5,
            seed=2**62,
            temperature=0.5,
            top_k=4,
            top_p=0.9,
            stop=Stop(eos=False, texts=("a", "b"), token_ids=(1, 2)),
        ),
        prompt_logprobs=True,
        topk_prompt_logprobs=2,
        topk_sample_logprobs=1,
        prompt_logprobs_last_n=1,
        prompt_targets=Cells(np.array([5, -1], dtype=np.int32), (1, 2)),
        prompt_alt_tokens_k=2,
    ),
    Sample(
        sampler_id=S,
        base_model="org/tiny",
        weights="tinker://s:train:0/weights/a",
        prompt=ModelInput.from_ints([9, 8, 7]),
        prompt_targets=Cells(
            np.array([5], dtype=np.int32), (2, 9), np.array([0, 0, 1]), np.array([4])
        ),
    ),
    ImportAdapter(
        model_id=M, base_model="org/tiny", path="tinker://s:train:0/weights/a", upload="ff00"
    ),
    InterpolateCheckpoints(
        model_id=M,
        base_model="org/tiny",
        path="tinker://s:train:0/sampler_weights/mean",
        source_paths=("tinker://s:train:1/weights/a", "tinker://s:train:2/sampler_weights/b"),
        coefficients=(0.75, -1e-9),
    ),
    ReverseKL(
        model_id=M,
        data=(
            ReverseKLDatum(
                ModelInput((*ModelInput.from_ints([1, 2]).chunks, OtherChunk("an image"))),
                ModelInput.from_ints([7, 8, 9, 2]),
                np.array([2, 2**40], dtype=np.int64),
                np.array([0.1, -2.0], dtype=np.float32),
            ),
        ),
        reference_base="org/tiny",
        reference_weights="tinker://s:train:1/weights/a",
        temperature=0.7,
    ),
    ResolveModel(base_model="org/tiny"),
    UnloadModel(model_id=M),
    ReleaseSampler(sampler_id=S),
]

RESULTS: list[tuple[str, Result]] = [
    ("UnloadModel", Done()),
    ("CreateModel", ModelReady(base_model="org/tiny", lora=LoraSpec(rank=8))),
    (
        "ForwardBackward",
        PassResult(
            logprobs=(
                np.array([-1.0, -2.0], dtype=np.float32),
                np.array([-3.0], dtype=np.float32),
                np.array([[-1.0, -2.0, -3.0]], dtype=np.float32),
                np.array([[-1.0], [-2.0]], dtype=np.float32),
                np.array([-4.0], dtype=np.float32),
            ),
            metrics=MappingProxyType({"loss:sum": 2.5}),
        ),
    ),
    (
        "ReverseKL",
        ReverseKLResult(
            logprobs=(np.array([-1.0, -2.0], np.float32), np.array([-3.0], np.float32)),
            reverse_kl=(np.array([0.5, 0.0], np.float32), np.array([2.0], np.float32)),
            metrics=MappingProxyType({"loss:sum": 2.5}),
        ),
    ),
    (
        "InterpolateCheckpoints",
        Interpolated(
            files=MappingProxyType({"a.bin": (3, "ff")}),
            lora=LoraSpec(rank=8),
            path="tinker://s:train:0/sampler_weights/a",
        ),
    ),
    ("OptimStep", StepResult(metrics=MappingProxyType({"grad_norm": 1.0}), weights_version=3)),
    (
        "SaveWeights",
        Saved(
            files=MappingProxyType({"a.bin": (3, "ff")}),
            weights_version=2,
            path="tinker://s:train:0/weights/a",
        ),
    ),
    (
        "ImportAdapter",
        Imported(
            files=MappingProxyType({"a.bin": (3, "ff")}),
            lora=LoraSpec(rank=8),
            path="tinker://s:train:0/weights/a",
        ),
    ),
    (
        "Sample",
        SampleResult(
            sequences=(
                SampledSequence(
                    tokens=np.array([4, 5], dtype=np.int32),
                    logprobs=np.array([-0.5, -0.25], dtype=np.float32),
                    stop_reason=StopReason.LENGTH,
                    topk=TopK(
                        np.array([[4, 1], [5, 1]], dtype=np.int32),
                        np.array([[-0.5, -2], [-0.25, -3]], dtype=np.float32),
                    ),
                ),
                SampledSequence(
                    tokens=np.zeros(0, dtype=np.int32),
                    logprobs=np.zeros(0, dtype=np.float32),
                    stop_reason=StopReason.STOP,
                ),
            ),
            prompt_logprobs=np.array([np.nan, -1.0], dtype=np.float32),
            topk_prompt_logprobs=TopK(
                np.array([[0], [7]], dtype=np.int32), np.array([[-99999.0], [-1]], dtype=np.float32)
            ),
            target_prompt_logprobs=Cells(
                np.array([-1], dtype=np.float32), (1, 2), np.array([0, 1]), np.array([1])
            ),
            prompt_alt_tokens=AltTokens(
                np.array([[3, 4]], dtype=np.int32), np.array([[-1, -2]], dtype=np.float32)
            ),
            weights_version=4,
        ),
    ),
]


def plain(value: Any) -> Any:
    """Comparable by ==, with dtypes and shapes; NaN as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return (value.dtype.name, value.shape, [str(x) for x in value.reshape(-1).tolist()])
    if isinstance(value, tuple | list):
        return [plain(x) for x in value]
    if isinstance(value, dict | MappingProxyType):
        return {key: plain(x) for key, x in value.items()}
    return value


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: type(o).__name__)
def test_an_operation_comes_back_from_its_payload(operation: Operation):
    again = payloads.decode(type(operation).__name__, payloads.encode(operation))

    assert type(again) is type(operation)
    assert plain(again) == plain(operation)


def test_every_operation_is_among_those_tried():
    assert {type(operation) for operation in OPERATIONS} == set(get_args(Operation))


@pytest.mark.parametrize(("kind", "result"), RESULTS, ids=lambda x: x if isinstance(x, str) else "")
def test_a_result_comes_back_from_its_bytes(kind: str, result: Result):
    again = payloads.decode_result(kind, payloads.encode_result(result))

    assert type(again) is type(result)
    assert plain(again) == plain(result)


def test_every_result_is_among_those_tried():
    assert {type(result) for _, result in RESULTS} == set(get_args(Result))


def test_defaults_of_an_operation_are_what_an_empty_request_means():
    params = payloads.decode("OptimStep", b'{"model_id": "m", "params": {}}')

    assert isinstance(params, OptimStep)
    assert asdict(params.params) == asdict(AdamParams())
