"""Operations and results as bytes, for the rows of the store and between the processes.

`kind` is the operation's class name. Gradient passes and samples are kept in the protobuf form of
the newest SDK, so that a request is queued and a result is delivered without being rewritten;
the rest is JSON, legible in the database.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from mint.core.datum import ReverseKLDatum
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput, OtherChunk, TokenChunk
from mint.core.operations import (
    CreateModel,
    Done,
    ForwardBackward,
    Imported,
    InterpolateCheckpoints,
    Interpolated,
    ModelReady,
    Operation,
    OptimStep,
    PassResult,
    Result,
    ReverseKL,
    Sample,
    SampleResult,
    Saved,
    StepResult,
)
from mint.core.optim import AdamParams
from mint.core.sampling import Cells, SamplingParams, Stop
from mint.wire import protobuf

_OPERATIONS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Operation)}


def encode(operation: Operation) -> bytes:
    """The payload of an operation's row."""
    if isinstance(operation, ForwardBackward):
        return protobuf.encode_forward_backward(operation)
    if isinstance(operation, Sample):
        return _to_json(_sample_to_plain(operation))
    if isinstance(operation, ReverseKL):
        return _to_json(_reverse_kl_to_plain(operation))
    return _to_json(operation)


def decode(kind: str, payload: bytes) -> Operation:
    """Inverse of `encode`; also reads the body a client sent for a ForwardBackward.

    Raises:
        UserError: the payload is a client's and contradicts itself.
        KeyError: `kind` names no operation.
    """
    cls = _OPERATIONS[kind]
    if cls is ForwardBackward:
        return protobuf.forward_backward(protobuf.parse_forward_backward(payload))
    plain = json.loads(payload)
    if cls is CreateModel:
        plain["lora"] = LoraSpec(**plain["lora"])
    elif cls is OptimStep:
        plain["params"] = AdamParams(**plain["params"])
    elif cls is Sample:
        plain["prompt"] = _input_from_plain(plain["prompt"])
        plain["params"] = _params_from_plain(plain["params"])
        plain["prompt_targets"] = _cells_from_plain(plain.get("prompt_targets"))
    elif cls is ReverseKL:
        plain["data"] = tuple(_datum_from_plain(datum) for datum in plain["data"])
    elif cls is InterpolateCheckpoints:
        plain["source_paths"] = tuple(plain["source_paths"])
        plain["coefficients"] = tuple(plain["coefficients"])
    return cls(**plain)


def encode_result(result: Result) -> bytes:
    """The result bytes of an ended operation."""
    if isinstance(result, PassResult):
        return protobuf.encode_pass(result)
    if isinstance(result, SampleResult):
        return protobuf.encode_sample(result)
    return _to_json(result)


def decode_result(kind: str, payload: bytes) -> Result:
    """Inverse of `encode_result`, for the result of an operation of this kind."""
    return _RESULTS.get(kind, lambda _: Done())(payload)


def _model_ready(payload: bytes) -> ModelReady:
    plain = json.loads(payload)
    return ModelReady(base_model=plain["base_model"], lora=LoraSpec(**plain["lora"]))


def _saved(payload: bytes) -> Saved:
    plain = json.loads(payload)
    files = {name: (int(size), str(digest)) for name, (size, digest) in plain["files"].items()}
    return Saved(files=files, weights_version=plain["weights_version"], path=plain["path"])


def _imported(payload: bytes, kind: type[Imported] = Imported) -> Imported:
    plain = json.loads(payload)
    files = {name: (int(size), str(digest)) for name, (size, digest) in plain["files"].items()}
    return kind(files=files, lora=LoraSpec(**plain["lora"]), path=plain["path"])


_RESULTS: Mapping[str, Callable[[bytes], Result]] = {
    "CreateModel": _model_ready,
    "CreateModelFrom": _model_ready,
    "ImportAdapter": _imported,
    "InterpolateCheckpoints": lambda payload: _imported(payload, Interpolated),
    "ForwardBackward": protobuf.decode_pass,
    "ReverseKL": protobuf.decode_reverse_kl,
    "OptimStep": lambda payload: StepResult(**json.loads(payload)),
    "SaveWeights": _saved,
    "Sample": protobuf.decode_sample,
}


def _sample_to_plain(operation: Sample) -> dict[str, Any]:
    plain = {field.name: getattr(operation, field.name) for field in fields(operation)}
    plain["prompt"] = _input_to_plain(operation.prompt)
    plain["prompt_targets"] = _cells_to_plain(operation.prompt_targets)
    return plain


def _reverse_kl_to_plain(operation: ReverseKL) -> dict[str, Any]:
    plain = {field.name: getattr(operation, field.name) for field in fields(operation)}
    plain["data"] = [
        {
            "student_input": _input_to_plain(datum.student_input),
            "reference_input": _input_to_plain(datum.reference_input),
            "target_tokens": _to_base64(datum.target_tokens, "<i8"),
            "weights": _to_base64(datum.weights, "<f4"),
        }
        for datum in operation.data
    ]
    return plain


def _datum_from_plain(plain: dict[str, Any]) -> ReverseKLDatum:
    return ReverseKLDatum(
        student_input=_input_from_plain(plain["student_input"]),
        reference_input=_input_from_plain(plain["reference_input"]),
        target_tokens=_from_base64(plain["target_tokens"], "<i8"),
        weights=_from_base64(plain["weights"], "<f4"),
    )


def _cells_to_plain(cells: Cells | None) -> dict[str, Any] | None:
    return cells and {
        "ids": _to_base64(cells.values, "<i4"),
        "shape": cells.shape,
        "crow": None if cells.crow is None else _to_base64(cells.crow, "<i8"),
        "col": None if cells.col is None else _to_base64(cells.col, "<i8"),
    }


def _cells_from_plain(plain: dict[str, Any] | None) -> Cells | None:
    if plain is None:
        return None
    rows, columns = plain["shape"]
    return Cells(
        _from_base64(plain["ids"], "<i4"),
        (rows, columns),
        None if plain["crow"] is None else _from_base64(plain["crow"], "<i8"),
        None if plain["col"] is None else _from_base64(plain["col"], "<i8"),
    )


def _to_base64(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode("ascii")


def _from_base64(text: str, dtype: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


def _chunk_to_plain(chunk: TokenChunk | OtherChunk) -> dict[str, str]:
    if isinstance(chunk, OtherChunk):
        return {"kind": chunk.kind}
    return {"int32": _to_base64(chunk.tokens, "<i4")}


def _input_to_plain(model_input: ModelInput) -> list[dict[str, str]]:
    return [_chunk_to_plain(chunk) for chunk in model_input.chunks]


def _input_from_plain(chunks: list[dict[str, str]]) -> ModelInput:
    return ModelInput(
        tuple(
            TokenChunk(_from_base64(chunk["int32"], "<i4"))
            if "int32" in chunk
            else OtherChunk(chunk["kind"])
            for chunk in chunks
        )
    )


def _params_from_plain(plain: dict[str, Any]) -> SamplingParams:
    stop = plain.pop("stop")
    return SamplingParams(
        stop=Stop(eos=stop["eos"], texts=tuple(stop["texts"]), token_ids=tuple(stop["token_ids"])),
        **plain,
    )


def _to_json(value: Any) -> bytes:
    # NaN stays readable between our own processes; what goes to clients is made in convert.py.
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a payload")
