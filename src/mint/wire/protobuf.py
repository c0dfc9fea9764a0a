"""Protobuf messages to core values and back, on numpy: no Python object per token.

Letters: N datums, n tokens or values of one datum, k columns, both of any size.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from mint.core.datum import Datum, Tensor
from mint.core.errors import LossInputError, UserError
from mint.core.ids import ModelId
from mint.core.model_input import ModelInput, OtherChunk, TokenChunk
from mint.core.operations import ForwardBackward, PassResult, ReverseKLResult, SampleResult
from mint.core.sampling import AltTokens, Cells, SampledSequence, StopReason, TopK
from mint.wire import mint_wire_pb2 as pb
from mint.wire.errors import BodyError
from mint.wire.parts import check_parts
from mint.wire.tensors import DenseBudget, sparse_to_dense

OUTPUT_TYPE = "ArrayRecord"
"""`loss_fn_output_type`; clients keep it as a label only."""

_DTYPES: Mapping[int, np.dtype[Any]] = {
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_INT64: np.dtype("<i8"),
    pb.DTYPE_INT32: np.dtype("<i4"),
}
_CHUNK_KINDS = {"image": "an image", "dmel": "audio"}


# ---------------------------------------------------------------- requests


def receive_forward_backward(body: bytes) -> pb.ForwardBackwardRequest:
    """As `parse_forward_backward`, for a body that anybody may have made.

    Raises:
        BodyTooLargeError: it has more parts than any real request.
        BodyError: the bytes are not such a message.
    """
    check_parts(body, pb.ForwardBackwardRequest)
    return parse_forward_backward(body)


def parse_forward_backward(body: bytes) -> pb.ForwardBackwardRequest:
    """Read the message, without looking at what it says.

    Raises:
        BodyError: the bytes are not such a message.
    """
    message = pb.ForwardBackwardRequest()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise BodyError(
            f"the body ({len(body)} bytes) is not a ForwardBackwardRequest in protobuf: {error}. "
            "It may have been cut on its way."
        ) from error
    return message


def forward_backward(message: pb.ForwardBackwardRequest) -> ForwardBackward:
    """The operation a message asks for.

    Raises:
        UserError: a chunk or tensor contradicts itself; the message names it.
    """
    budget = DenseBudget()
    return ForwardBackward(
        model_id=ModelId(message.model_id),
        data=tuple(_datum(datum, f"data[{i}]", budget) for i, datum in enumerate(message.data)),
        loss_fn=message.loss_fn,
        loss_fn_config=_loss_fn_config(message),
        forward_only=message.forward_only,
    )


def _loss_fn_config(message: pb.ForwardBackwardRequest) -> dict[str, float | str]:
    if not message.loss_fn_config_v2:
        return dict(message.loss_fn_config)
    return {
        key: value.text if value.WhichOneof("value") == "text" else value.number
        for key, value in message.loss_fn_config_v2.items()
    }


def _datum(message: pb.Datum, where: str, budget: DenseBudget) -> Datum:
    return Datum(
        model_input=ModelInput(
            tuple(
                _chunk(chunk, f"{where}.model_input.chunks[{i}]")
                for i, chunk in enumerate(message.model_input)
            )
        ),
        loss_fn_inputs={
            name: _tensor(tensor, f"{where}.loss_fn_inputs[{name!r}]", budget)
            for name, tensor in message.loss_fn_inputs.items()
        },
    )


def _chunk(message: pb.Chunk, where: str) -> TokenChunk | OtherChunk:
    kind = message.WhichOneof("kind")
    if kind == "encoded_text":
        return TokenChunk(_numbers(message.encoded_text.tokens, "<i4", f"{where}.tokens"))
    return OtherChunk(_CHUNK_KINDS.get(kind or "", "of an unknown kind"))


def _tensor(message: pb.Tensor, where: str, budget: DenseBudget) -> Tensor:
    """One dense array, float32 or int64, in the shape it claims."""
    dtype = _DTYPES.get(message.dtype)
    if dtype is None:
        raise LossInputError(f"{where} has dtype {message.dtype}; send float32 or int64.")
    shape = tuple(message.shape)
    if message.WhichOneof("layout") == "sparse_csr":
        csr = message.sparse_csr
        dense = sparse_to_dense(
            _numbers(csr.values, dtype, f"{where}.values"),
            _numbers(csr.crow_indices, "<i8", f"{where}.crow_indices"),
            _numbers(csr.col_indices, "<i8", f"{where}.col_indices"),
            shape,
            where,
            budget,
        )
    else:
        flat = _numbers(message.dense, dtype, where)
        dense = reshape(flat, shape, where) if shape else flat
    return dense.astype(np.int64) if dense.dtype.kind == "i" else dense


def _numbers(data: bytes, dtype: str | np.dtype[Any], where: str) -> NDArray[Any]:
    """A read-only view of packed numbers."""
    kind = np.dtype(dtype)
    if len(data) % kind.itemsize:
        raise LossInputError(
            f"{where} has {len(data)} bytes, which is no whole number of {kind.name} values."
        )
    return np.frombuffer(data, dtype=kind)


def reshape(flat: NDArray[Any], shape: Sequence[int], where: str) -> NDArray[Any]:
    """`flat` in `shape`, refusing negative sizes and a product that does not fit."""
    # Python integers: the product of hostile sizes must not wrap around.
    values = 1
    for size in shape:
        values *= int(size)
    if any(size < 0 for size in shape) or values != flat.size or len(shape) > 2 or 0 in shape[1:]:
        raise LossInputError(
            f"{where} has {flat.size} values, but its shape says {list(shape)}. Shapes are [n] or "
            "[n, k] with k of 1 or more."
        )
    return flat.reshape(tuple(shape))


def encode_forward_backward(operation: ForwardBackward, seq_id: int = 0) -> bytes:
    """The message that asks for `operation`, as the newest SDK would send it."""
    message = pb.ForwardBackwardRequest(
        model_id=operation.model_id,
        seq_id=seq_id,
        loss_fn=operation.loss_fn,
        forward_only=operation.forward_only,
    )
    for key, value in operation.loss_fn_config.items():
        if isinstance(value, str):
            message.loss_fn_config_v2[key].text = value
        else:
            message.loss_fn_config_v2[key].number = value
    for datum in operation.data:
        entry = message.data.add()
        for chunk in datum.model_input.chunks:
            if isinstance(chunk, OtherChunk):
                raise UserError(f"a chunk of the input is {chunk.kind}; it cannot be trained on.")
            entry.model_input.add().encoded_text.tokens = _packed(chunk.tokens, "<i4")
        for name, tensor in datum.loss_fn_inputs.items():
            field = entry.loss_fn_inputs[name]
            whole = tensor.dtype.kind in "iu"
            field.dense = _packed(tensor, "<i8" if whole else "<f4")
            field.dtype = pb.DTYPE_INT64 if whole else pb.DTYPE_FLOAT32
            field.shape.extend(tensor.shape)
    return message.SerializeToString()


# ----------------------------------------------------------------- answers


def encode_pass(result: PassResult) -> bytes:
    """A ForwardBackwardOutput message."""
    message = pb.ForwardBackwardOutput(loss_fn_output_type=OUTPUT_TYPE, metrics=result.metrics)
    columns = outputs_of(result)
    for run in _alike(result.logprobs):
        record = message.loss_fn_outputs.add(type_tag=OUTPUT_TYPE, num_datums=run.stop - run.start)
        for name, arrays in columns.items():
            _write_batch(record.fields[name], arrays[run])
    return message.SerializeToString()


def outputs_of(result: PassResult) -> Mapping[str, Sequence[NDArray[np.float32]]]:
    """What a pass computed per datum, by the names in which clients get it."""
    if isinstance(result, ReverseKLResult):
        return {"logprobs": result.logprobs, "reverse_kl": result.reverse_kl}
    return {"logprobs": result.logprobs}


def _alike(arrays: Sequence[NDArray[np.float32]]) -> Iterator[slice]:
    """Runs of arrays with the same trailing shape: such datums share a record."""
    start = 0
    for i in range(1, len(arrays) + 1):
        if i == len(arrays) or arrays[i].shape[1:] != arrays[start].shape[1:]:
            yield slice(start, i)
            start = i


def _write_batch(field: pb.BatchedTensor, arrays: Sequence[NDArray[np.float32]]) -> None:
    field.dtype = pb.DTYPE_FLOAT32
    field.trailing_shape.extend(arrays[0].shape[1:])
    field.data = b"".join(_packed(array, "<f4") for array in arrays)
    ends = np.cumsum([0, *(array.size * 4 for array in arrays)], dtype=np.int64)
    field.offsets = _packed(ends, "<i8")


def decode_pass(body: bytes) -> PassResult:
    """Inverse of `encode_pass`, for a ForwardBackward."""
    message = pb.ForwardBackwardOutput.FromString(body)
    return PassResult(logprobs=_column(message, "logprobs"), metrics=dict(message.metrics))


def decode_reverse_kl(body: bytes) -> ReverseKLResult:
    """Inverse of `encode_pass`, for a ReverseKL."""
    message = pb.ForwardBackwardOutput.FromString(body)
    return ReverseKLResult(
        logprobs=_column(message, "logprobs"),
        reverse_kl=_column(message, "reverse_kl"),
        metrics=dict(message.metrics),
    )


def _column(message: pb.ForwardBackwardOutput, name: str) -> tuple[NDArray[np.float32], ...]:
    found: list[NDArray[np.float32]] = []
    for record in message.loss_fn_outputs:
        field = record.fields[name]
        values = np.frombuffer(field.data, dtype="<f4")
        ends = np.frombuffer(field.offsets, dtype="<i8") // 4
        trailing = tuple(field.trailing_shape)
        found += [values[start:end].reshape(-1, *trailing) for start, end in pairwise(ends)]
    return tuple(found)


def encode_sample(result: SampleResult) -> bytes:
    """A SampleResponse message."""
    message = pb.SampleResponse(weights_version=result.weights_version)
    for sequence in result.sequences:
        entry = message.sequences.add(
            stop_reason=pb.STOP_REASON_LENGTH
            if sequence.stop_reason is StopReason.LENGTH
            else pb.STOP_REASON_STOP,
            tokens=_packed(sequence.tokens, "<i4"),
            logprobs=_packed(sequence.logprobs, "<f4"),
        )
        if sequence.topk is not None:
            _write_topk(entry.topk_sampled_logprobs, sequence.topk)
    if result.prompt_logprobs is not None:
        message.prompt_logprobs = _packed(result.prompt_logprobs, "<f4")
    if result.topk_prompt_logprobs is not None:
        _write_topk(message.topk_prompt_logprobs, result.topk_prompt_logprobs)
    if result.target_prompt_logprobs is not None:
        _write_cells(message.target_prompt_logprobs, result.target_prompt_logprobs)
    if result.prompt_alt_tokens is not None:
        drawn = result.prompt_alt_tokens
        _write_table(message.prompt_alt_tokens.tokens, drawn.token_ids, "<i8")
        _write_table(message.prompt_alt_tokens.logprobs, drawn.logprobs, "<f4")
    return message.SerializeToString()


def decode_sample(body: bytes) -> SampleResult:
    """Inverse of `encode_sample`."""
    message = pb.SampleResponse.FromString(body)
    return SampleResult(
        sequences=tuple(_sequence(entry) for entry in message.sequences),
        prompt_logprobs=np.frombuffer(message.prompt_logprobs, dtype="<f4")
        if message.HasField("prompt_logprobs")
        else None,
        topk_prompt_logprobs=_read_topk(message.topk_prompt_logprobs)
        if message.HasField("topk_prompt_logprobs")
        else None,
        target_prompt_logprobs=_read_cells(message.target_prompt_logprobs)
        if message.HasField("target_prompt_logprobs")
        else None,
        prompt_alt_tokens=_read_alt_tokens(message.prompt_alt_tokens)
        if message.HasField("prompt_alt_tokens")
        else None,
        weights_version=message.weights_version,
    )


def _sequence(message: pb.SampledSequence) -> SampledSequence:
    return SampledSequence(
        tokens=np.frombuffer(message.tokens, dtype="<i4"),
        logprobs=np.frombuffer(message.logprobs, dtype="<f4"),
        stop_reason=StopReason.LENGTH
        if message.stop_reason == pb.STOP_REASON_LENGTH
        else StopReason.STOP,
        topk=_read_topk(message.topk_sampled_logprobs)
        if message.HasField("topk_sampled_logprobs")
        else None,
    )


def _write_cells(message: pb.Tensor, cells: Cells) -> None:
    message.dtype = pb.DTYPE_FLOAT32
    message.shape.extend(cells.shape)
    packed = _packed(cells.values, "<f4")
    if cells.crow is None or cells.col is None:
        message.dense = packed
        return
    message.sparse_csr.values = packed
    message.sparse_csr.crow_indices = _packed(cells.crow, "<i8")
    message.sparse_csr.col_indices = _packed(cells.col, "<i8")


def _read_cells(message: pb.Tensor) -> Cells:
    rows, columns = message.shape
    if message.WhichOneof("layout") == "dense":
        return Cells(np.frombuffer(message.dense, dtype="<f4"), (rows, columns))
    csr = message.sparse_csr
    return Cells(
        np.frombuffer(csr.values, dtype="<f4"),
        (rows, columns),
        np.frombuffer(csr.crow_indices, dtype="<i8"),
        np.frombuffer(csr.col_indices, dtype="<i8"),
    )


def _write_table(message: pb.Tensor, table: NDArray[Any], dtype: str) -> None:
    message.dtype = pb.DTYPE_INT64 if dtype == "<i8" else pb.DTYPE_FLOAT32
    message.shape.extend(table.shape)
    message.dense = _packed(table, dtype)


def _read_alt_tokens(message: pb.PromptAltTokens) -> AltTokens:
    shape = tuple(message.tokens.shape)
    ids = np.frombuffer(message.tokens.dense, dtype="<i8").reshape(shape)
    logprobs = np.frombuffer(message.logprobs.dense, dtype="<f4").reshape(shape)
    return AltTokens(ids.astype(np.int32), logprobs)


def _write_topk(message: pb.TopK, topk: TopK) -> None:
    message.length, message.k = topk.token_ids.shape
    message.token_ids = _packed(topk.token_ids, "<i4")
    message.logprobs = _packed(topk.logprobs, "<f4")


def _read_topk(message: pb.TopK) -> TopK:
    shape = (message.length, message.k)
    return TopK(
        token_ids=np.frombuffer(message.token_ids, dtype="<i4").reshape(shape),
        logprobs=np.frombuffer(message.logprobs, dtype="<f4").reshape(shape),
    )


def _packed(array: NDArray[Any], dtype: str) -> bytes:
    return np.ascontiguousarray(array, dtype=dtype).tobytes()
