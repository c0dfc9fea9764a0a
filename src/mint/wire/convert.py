"""JSON bodies to core values, and results to JSON answers.

Raises UserError for what a body says, never for what it lacks to be read: the caller gets it as
the failed result of the operation.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mint.core.datum import Datum, ReverseKLDatum, Tensor
from mint.core.errors import LossInputError, ServerFaultError, UnsupportedError, UserError
from mint.core.ids import ModelId, SamplerId
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput, OtherChunk, TokenChunk
from mint.core.operations import (
    ForwardBackward,
    OptimStep,
    PassResult,
    ReverseKL,
    Sample,
    SampleResult,
    StepResult,
)
from mint.core.optim import AdamParams
from mint.core.sampling import Cells, SamplingParams, Stop, TopK
from mint.wire import json_models as body
from mint.wire.protobuf import OUTPUT_TYPE, outputs_of, reshape
from mint.wire.tensors import DenseBudget, check_csr, sparse_to_dense

_TENSOR_DTYPES: Mapping[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "int64": np.dtype(np.int64),
}
_SEED_RANGE = range(-(1 << 63), 1 << 64)
_MAX_TOP_LOGPROBS = 128
"""Most (id, logprob) pairs per position: bounds a result to about 1 KiB a token."""
_MAX_TARGETS = 1 << 22
"""Most cells of target_prompt_logprobs: 128 for each of 32,768 tokens."""
MAX_NUM_SAMPLES = 1024


# ---------------------------------------------------------------- requests


def lora_spec(config: body.LoraConfig) -> LoraSpec:
    return LoraSpec(
        rank=config.rank,
        seed=_seed(config.seed, "lora_config.seed"),
        train_unembed=config.train_unembed,
        train_mlp=config.train_mlp,
        train_attn=config.train_attn,
    )


def check_optimizer(config: body.OptimizerConfig) -> None:
    """Refuse optimizers other than Adam by name."""
    if config.type not in ("adamw", "adam"):
        raise UnsupportedError(
            f"optimizer {config.type!r} is not offered; adapters here are trained with Adam. "
            "Leave optimizer_config out and send adam_params."
        )


def forward_backward(request: body.ForwardBackward, *, forward_only: bool) -> ForwardBackward:
    """The operation a JSON body of an SDK up to 0.24 asks for."""
    given = request.forward_backward_input or request.forward_input
    if given is None:
        raise UserError("the body has neither forward_backward_input nor forward_input.")
    budget = DenseBudget()
    return ForwardBackward(
        model_id=ModelId(request.model_id),
        data=tuple(_datum(datum, f"data[{i}]", budget) for i, datum in enumerate(given.data)),
        loss_fn=given.loss_fn,
        loss_fn_config=given.loss_fn_config,
        forward_only=forward_only,
    )


def reverse_kl(
    request: body.ReverseKL, *, reference_base: str, reference_weights: str | None
) -> ReverseKL:
    """The operation a body asks for, once it is known what its reference is."""
    budget = DenseBudget()
    return ReverseKL(
        model_id=ModelId(request.model_id),
        data=tuple(
            _reverse_kl_datum(datum, f"data[{i}]", budget) for i, datum in enumerate(request.data)
        ),
        reference_base=reference_base,
        reference_weights=reference_weights,
        temperature=request.temperature,
    )


def _reverse_kl_datum(
    datum: body.ReverseKLDatumBody, where: str, budget: DenseBudget
) -> ReverseKLDatum:
    targets = _tensor(datum.target_tokens, f"{where}.target_tokens", budget)
    if targets.dtype.kind != "i":
        raise LossInputError(f"{where}.target_tokens is {targets.dtype}; send int64 token ids.")
    if datum.weights is None:
        weights = np.ones(targets.shape, dtype=np.float32)
    else:
        weights = _tensor(datum.weights, f"{where}.weights", budget).astype(np.float32)
    return ReverseKLDatum(
        student_input=model_input(datum.student_input, f"{where}.student_input"),
        reference_input=model_input(datum.reference_input, f"{where}.reference_input"),
        target_tokens=targets.astype(np.int64),
        weights=weights,
    )


def optim_step(request: body.OptimStep) -> OptimStep:
    if request.optimizer_params is not None:
        check_optimizer(request.optimizer_params)
        raise UnsupportedError("send Adam's numbers as adam_params, not as optimizer_params.")
    return OptimStep(
        model_id=ModelId(request.model_id), params=AdamParams(**request.adam_params.model_dump())
    )


def sample(request: body.Sample, *, base_model: str, weights: str | None) -> Sample:
    """The operation an asample body asks for, on the weights of its sampling session."""
    if not 1 <= request.num_samples <= MAX_NUM_SAMPLES:
        raise UserError(f"num_samples={request.num_samples}: give 1 to {MAX_NUM_SAMPLES}.")
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k"):
        if not 0 <= getattr(request, name) <= _MAX_TOP_LOGPROBS:
            raise UserError(
                f"{name}={getattr(request, name)}: give 0 (off) to {_MAX_TOP_LOGPROBS}."
            )
    return Sample(
        sampler_id=SamplerId(request.sampling_session_id),
        base_model=base_model,
        weights=weights,
        prompt=model_input(request.prompt, "prompt"),
        num_samples=request.num_samples,
        params=sampling_params(request.sampling_params),
        prompt_logprobs=request.prompt_logprobs,
        topk_prompt_logprobs=request.topk_prompt_logprobs,
        topk_sample_logprobs=request.topk_sample_logprobs,
        prompt_logprobs_last_n=request.prompt_logprobs_last_n,
        prompt_targets=request.target_prompt_logprobs and _targets(request.target_prompt_logprobs),
        prompt_alt_tokens_k=request.prompt_alt_tokens_k,
    )


def _targets(tensor: body.TensorBody) -> Cells:
    """Ids to score, in the layout they came in: the answer has it too."""
    where = "target_prompt_logprobs"
    if tensor.dtype != "int64" or tensor.shape is None or len(tensor.shape) != 2:
        raise UserError(f"{where} must be an int64 tensor of shape [len(prompt) - 1, k].")
    ids = _numbers(tensor.data, np.dtype(np.int32), where)
    if len(ids) > _MAX_TARGETS:
        raise UserError(f"{where} asks for {len(ids)} cells; at most {_MAX_TARGETS} are scored.")
    crow, col = tensor.sparse_crow_indices, tensor.sparse_col_indices
    if crow is None or col is None:
        return Cells(ids, reshape(ids, tensor.shape, where).shape)
    indices = np.dtype(np.int64)
    starts = _numbers(crow, indices, f"{where}.sparse_crow_indices")
    columns = _numbers(col, indices, f"{where}.sparse_col_indices")
    return Cells(ids, check_csr(ids, starts, columns, tensor.shape, where), starts, columns)


def sampling_params(request: body.SamplingParamsBody) -> SamplingParams:
    return SamplingParams(
        max_tokens=request.max_tokens,
        seed=_seed(request.seed, "sampling_params.seed"),
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        stop=_stop(request.stop, request.stop_token_ids),
    )


def _stop(stop: str | list[Any] | None, stop_token_ids: list[Any]) -> Stop:
    """The five forms of `stop`. Only [] turns the model's own end tokens off."""
    if stop is None or isinstance(stop, str):
        texts, ids = ((stop,) if stop is not None else ()), ()
    elif all(isinstance(item, str) for item in stop):
        texts, ids = tuple(stop), ()
    else:
        texts, ids = (), _ids(stop, "stop")
    return Stop(eos=stop != [], texts=texts, token_ids=ids + _ids(stop_token_ids, "stop_token_ids"))


def _ids(values: Sequence[Any], name: str) -> tuple[int, ...]:
    if not all(isinstance(item, int) and 0 <= item < 1 << 31 for item in values):
        raise UserError(f"sampling_params.{name} must hold either texts only or token ids only.")
    return tuple(values)


def _seed(seed: int | None, name: str) -> int | None:
    if seed is not None and seed not in _SEED_RANGE:
        raise UserError(f"{name}={seed}: give a number of at most 64 bits.")
    return seed


def model_input(request: body.ModelInputBody, where: str) -> ModelInput:
    return ModelInput(
        tuple(_chunk(chunk, f"{where}.chunks[{i}]") for i, chunk in enumerate(request.chunks))
    )


def _chunk(chunk: body.ChunkBody, where: str) -> TokenChunk | OtherChunk:
    if chunk.type == "encoded_text" or (chunk.type is None and chunk.tokens is not None):
        return TokenChunk(_numbers(chunk.tokens or [], np.dtype(np.int32), f"{where}.tokens"))
    if chunk.dmel is not None:
        return OtherChunk("audio")
    if chunk.data is not None or chunk.location is not None:
        return OtherChunk("an image")
    return OtherChunk(f"of the unknown type {chunk.type!r}")


def _datum(datum: body.DatumBody, where: str, budget: DenseBudget) -> Datum:
    return Datum(
        model_input=model_input(datum.model_input, f"{where}.model_input"),
        loss_fn_inputs={
            name: _tensor(tensor, f"{where}.loss_fn_inputs[{name!r}]", budget)
            for name, tensor in datum.loss_fn_inputs.items()
        },
    )


def _tensor(tensor: body.TensorBody, where: str, budget: DenseBudget) -> Tensor:
    dtype = _TENSOR_DTYPES.get(tensor.dtype)
    if dtype is None:
        raise LossInputError(f"{where} has dtype {tensor.dtype!r}; send float32 or int64.")
    values = _numbers(tensor.data, dtype, where)
    crow, col = tensor.sparse_crow_indices, tensor.sparse_col_indices
    if crow is not None and col is not None:
        indices = np.dtype(np.int64)
        return sparse_to_dense(
            values,
            _numbers(crow, indices, f"{where}.sparse_crow_indices"),
            _numbers(col, indices, f"{where}.sparse_col_indices"),
            tensor.shape or [],
            where,
            budget,
        )
    return reshape(values, tensor.shape, where) if tensor.shape else values


def _numbers(values: list[Any], dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
        if array.size and array.dtype.kind not in ("iuf" if dtype.kind == "f" else "iu"):
            raise TypeError(f"{array.dtype.name} values where {dtype.name} is needed")
        if dtype.kind == "i" and array.size:
            limits = np.iinfo(dtype)
            if array.min() < limits.min or array.max() > limits.max:
                raise OverflowError(f"a value does not fit {dtype.name}")
        with np.errstate(over="ignore"):  # becomes inf, which the loss's check names
            array = array.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise LossInputError(f"{where} is no list of numbers: {error}.") from error
    if array.ndim != 1:
        raise LossInputError(f"{where} is nested; send its numbers flat, with a shape.")
    return array


# ----------------------------------------------------------------- answers


def step_to_json(result: StepResult) -> dict[str, Any]:
    return {"metrics": finite(result.metrics), "type": "optim_step"}


def pass_to_json(result: PassResult) -> dict[str, Any]:
    """ForwardBackwardOutput for SDKs that take no protobuf. Tensors have exactly three keys: the
    old SDKs refuse a fourth."""
    columns = outputs_of(result)
    return {
        "loss_fn_output_type": OUTPUT_TYPE,
        "loss_fn_outputs": [
            {
                name: {
                    "data": _floats(arrays[i].reshape(-1), f"loss_fn_outputs.{name}"),
                    "dtype": "float32",
                    "shape": list(arrays[i].shape),
                }
                for name, arrays in columns.items()
            }
            for i in range(len(result.logprobs))
        ],
        "metrics": finite(result.metrics),
    }


def sample_to_json(result: SampleResult) -> dict[str, Any]:
    """SampleResponse for SDKs that take no protobuf."""
    answer = {
        "type": "sample",
        "sequences": [
            {
                "stop_reason": sequence.stop_reason.value,
                "tokens": sequence.tokens.tolist(),
                "logprobs": _floats(sequence.logprobs, "sequences.logprobs"),
            }
            for sequence in result.sequences
        ],
        "prompt_logprobs": None
        if result.prompt_logprobs is None
        else [value if math.isfinite(value) else None for value in result.prompt_logprobs.tolist()],
        "topk_prompt_logprobs": None
        if result.topk_prompt_logprobs is None
        else _topk_to_json(result.topk_prompt_logprobs),
    }
    # Keys that no SDK that takes JSON knows: only for whoever asked.
    if result.target_prompt_logprobs is not None:
        answer["target_prompt_logprobs"] = _cells_to_json(result.target_prompt_logprobs)
    if result.prompt_alt_tokens is not None:
        answer["prompt_alt_tokens"] = {
            "tokens": result.prompt_alt_tokens.token_ids.tolist(),
            "logprobs": result.prompt_alt_tokens.logprobs.tolist(),
        }
    return answer


def _cells_to_json(cells: Cells) -> dict[str, Any]:
    tensor = {
        "data": _floats(cells.values, "target_prompt_logprobs"),
        "dtype": "float32",
        "shape": list(cells.shape),
    }
    if cells.crow is not None and cells.col is not None:
        tensor["sparse_crow_indices"] = cells.crow.tolist()
        tensor["sparse_col_indices"] = cells.col.tolist()
    return tensor


def _topk_to_json(topk: TopK) -> list[list[list[float]] | None]:
    rows: list[list[list[float]] | None] = []
    for ids, logprobs in zip(topk.token_ids.tolist(), topk.logprobs.tolist(), strict=True):
        scored = not (logprobs and logprobs[0] <= -99999)
        rows.append([[i, p] for i, p in zip(ids, logprobs, strict=True)] if scored else None)
    return rows


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that JSON can carry: NaN and infinity are no JSON, and clients choke on them."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def _floats(array: NDArray[np.float32], name: str) -> list[float]:
    if not np.isfinite(array).all():
        raise ServerFaultError(
            f"{name} holds a value that is not finite, which JSON cannot carry. An SDK from 0.25 "
            "on receives it in protobuf. The weights may have diverged: lower the learning rate."
        )
    return array.tolist()
