"""Our protobuf against the official SDK's own encoder and decoder: only the bytes in common."""

import numpy as np
import pytest
import torch
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import deserialize_proto_response

from mint.core.model_input import OtherChunk
from mint.core.operations import ForwardBackward, PassResult, SampleResult
from mint.core.sampling import AltTokens, Cells, SampledSequence, StopReason, TopK
from mint.wire import protobuf


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def sent_by_sdk(
    *data: types.Datum, loss_fn: str = "cross_entropy", config: dict | None = None
) -> bytes:
    request = types.ForwardBackwardRequest(
        forward_backward_input=types.ForwardBackwardInput(
            data=list(data),
            loss_fn=loss_fn,  # type: ignore[arg-type]
            loss_fn_config=config,
        ),
        model_id="s:train:0",
        seq_id=3,
    )
    return forward_backward_request_to_proto(request).SerializeToString()


def received(body: bytes) -> ForwardBackward:
    return protobuf.forward_backward(protobuf.parse_forward_backward(body))


def a_datum(**inputs: types.TensorData) -> types.Datum:
    return types.Datum(
        model_input=types.ModelInput.from_ints([5, 6, 7]), loss_fn_inputs=dict(inputs)
    )


# ------------------------------------------------------------- requests


def test_tokens_and_tensors_arrive_as_the_sdk_sent_them():
    body = sent_by_sdk(
        a_datum(
            target_tokens=types.TensorData(data=[6, 7, 8], dtype="int64"),
            weights=types.TensorData(data=[0.0, 0.5, -1.5], dtype="float32"),
        )
    )

    message = protobuf.parse_forward_backward(body)
    operation = protobuf.forward_backward(message)

    [datum] = operation.data
    assert (message.seq_id, operation.model_id, operation.loss_fn) == (
        3,
        "s:train:0",
        "cross_entropy",
    )
    assert datum.model_input.tokens().tolist() == [5, 6, 7]
    assert datum.loss_fn_inputs["target_tokens"].dtype == np.int64
    assert datum.loss_fn_inputs["target_tokens"].tolist() == [6, 7, 8]
    assert datum.loss_fn_inputs["weights"].dtype == np.float32
    assert datum.loss_fn_inputs["weights"].tolist() == [0.0, 0.5, -1.5]


def test_a_sparse_tensor_arrives_dense_with_zeros_in_absent_cells():
    dense = torch.zeros(3, 40)
    dense[0, 1], dense[2, 39], dense[2, 0] = 0.5, 1.5, -2.0
    body = sent_by_sdk(a_datum(weights=dense))  # type: ignore[arg-type]
    assert protobuf.parse_forward_backward(body).data[0].loss_fn_inputs["weights"].sparse_csr.values

    [datum] = received(body).data

    assert datum.loss_fn_inputs["weights"].tolist() == dense.tolist()


def test_a_dense_matrix_keeps_its_shape():
    matrix = np.arange(6, dtype=np.int64).reshape(3, 2)
    sent = types.TensorData.from_numpy(matrix)

    [datum] = received(sent_by_sdk(a_datum(target_tokens=sent))).data

    assert datum.loss_fn_inputs["target_tokens"].tolist() == matrix.tolist()


def test_an_image_arrives_as_something_else_than_text():
    body = sent_by_sdk(
        types.Datum(
            model_input=types.ModelInput(
                chunks=[
                    types.EncodedTextChunk(tokens=[1]),
                    types.ImageChunk(data=b"x", format="png"),
                ]
            ),
            loss_fn_inputs={},
        )
    )

    [datum] = received(body).data

    assert datum.model_input.chunks[1] == OtherChunk("an image")


def test_numbers_and_texts_of_the_config_arrive():
    operation = received(sent_by_sdk(a_datum(), config={"clip_low_threshold": 0.5, "name": "x"}))

    assert operation.loss_fn_config == {"clip_low_threshold": 0.5, "name": "x"}


# -------------------------------------------------------------- answers


def read_pass(result: PassResult) -> types.ForwardBackwardOutput:
    read = deserialize_proto_response(protobuf.encode_pass(result), types.ForwardBackwardOutput)
    assert isinstance(read, types.ForwardBackwardOutput)
    return read


def read_sample(result: SampleResult) -> types.SampleResponse:
    read = deserialize_proto_response(protobuf.encode_sample(result), types.SampleResponse)
    assert isinstance(read, types.SampleResponse)
    return read


def test_the_sdk_reads_logprobs_of_mixed_shapes_in_datum_order():
    arrays = (
        f32(-1, -2),
        f32(-3),
        np.array([[-1, -2], [-3, -4], [-5, -6]], dtype=np.float32),
        np.array([[-7, -8, -9]], dtype=np.float32),
        f32(-10, -11, -12),
    )

    read = read_pass(PassResult(logprobs=arrays, metrics={"loss:sum": 1.25}))

    assert read.metrics == {"loss:sum": 1.25}
    assert read.loss_fn_output_type == "ArrayRecord"
    outputs = [output["logprobs"].to_numpy() for output in read.loss_fn_outputs]
    assert [output.tolist() for output in outputs] == [array.tolist() for array in arrays]


def test_the_sdk_reads_sequences_with_reasons_logprobs_and_top_tokens():
    top = TopK(np.array([[4, 9], [5, 9]], dtype=np.int32), np.array([[-1, -2], [-1, -3]], "f4"))
    result = SampleResult(
        sequences=(
            SampledSequence(i32(4, 5), f32(-0.5, -0.25), StopReason.LENGTH, top),
            SampledSequence(i32(6), f32(-0.75), StopReason.STOP),
        ),
        weights_version=12,
    )

    first, second = read_sample(result).sequences

    assert (list(first.tokens), first.logprobs) == ([4, 5], [-0.5, -0.25])
    assert (first.stop_reason, second.stop_reason) == ("length", "stop")
    assert first.topk_logprobs == [[(4, -1.0), (9, -2.0)], [(5, -1.0), (9, -3.0)]]
    assert second.topk_logprobs is None


def test_the_sdk_shows_the_unscored_first_prompt_token_as_none():
    result = SampleResult(
        sequences=(),
        prompt_logprobs=f32(np.nan, -1, -2),
        topk_prompt_logprobs=TopK(
            np.array([[0], [8], [9]], dtype=np.int32),
            np.array([[-99999], [-1], [-2]], dtype=np.float32),
        ),
    )

    read = read_sample(result)

    assert read.prompt_logprobs == [None, -1.0, -2.0]
    assert read.topk_prompt_logprobs == [None, [(8, -1.0)], [(9, -2.0)]]


def test_the_sdk_reads_no_prompt_logprobs_where_none_were_asked_for():
    read = read_sample(SampleResult(sequences=(SampledSequence(i32(1), f32(-1), StopReason.STOP),)))

    assert read.prompt_logprobs is None
    assert read.topk_prompt_logprobs is None


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_a_pass_over_any_number_of_datums_is_read_whole(size: int):
    arrays = tuple(f32(-i, -2 * i) for i in range(size))

    read = read_pass(PassResult(logprobs=arrays, metrics={"loss:sum": 0.0}))

    assert len(read.loss_fn_outputs) == size
    assert [output["logprobs"].tolist() for output in read.loss_fn_outputs] == [
        array.tolist() for array in arrays
    ]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_sdk_reads_scores_of_asked_ids_in_the_layout_it_asked_in(is_sparse: bool):
    csr = (np.array([0, 1, 3]), np.array([1, 0, 2])) if is_sparse else (None, None)
    cells = Cells(f32(-1, -2, -3) if is_sparse else f32(-1, -2, -3, 0, -5, -6), (2, 3), *csr)

    read = read_sample(SampleResult(sequences=(), target_prompt_logprobs=cells))

    scored = read.target_prompt_logprobs
    assert scored is not None
    assert (scored.dtype, scored.shape) == ("float32", [2, 3])
    assert list(scored.data) == cells.values.tolist()
    assert scored.sparse_crow_indices == ([0, 1, 3] if is_sparse else None)
    assert scored.sparse_col_indices == ([1, 0, 2] if is_sparse else None)


def test_the_sdk_reads_alternatives_to_the_prompt():
    drawn = AltTokens(np.array([[4, 5], [6, 7]], "i4"), np.array([[-1, -2], [-3, -4]], "f4"))

    read = read_sample(SampleResult(sequences=(), prompt_alt_tokens=drawn)).prompt_alt_tokens

    assert read is not None
    assert (read.tokens.dtype, read.tokens.to_numpy().tolist()) == ("int64", [[4, 5], [6, 7]])
    assert read.logprobs.to_numpy().tolist() == [[-1, -2], [-3, -4]]
