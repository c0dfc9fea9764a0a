"""Bodies that are damaged, contradict themselves, or want to be much larger than they look."""

import asyncio
import gzip
import zlib
from contextlib import suppress

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mint.core.errors import LossInputError, UserError
from mint.wire import json_models, protobuf
from mint.wire import mint_wire_pb2 as pb
from mint.wire.compression import collect, decompress
from mint.wire.errors import BodyError, BodyTooLargeError, EncodingError
from mint.wire.parts import MAX_PARTS, check_parts

LIMIT = 100_000


def request_with(tensor: pb.Tensor) -> pb.ForwardBackwardRequest:
    message = pb.ForwardBackwardRequest(model_id="m", loss_fn="cross_entropy")
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = np.arange(3, dtype="<i4").tobytes()
    datum.loss_fn_inputs["weights"].CopyFrom(tensor)
    return message


def dense(values: bytes, shape: list[int], dtype: int = pb.DTYPE_FLOAT32) -> pb.Tensor:
    return pb.Tensor(dense=values, dtype=dtype, shape=shape)  # type: ignore[arg-type]


def sparse(crow: list[int], col: list[int], shape: list[int]) -> pb.Tensor:
    csr = pb.SparseCsr(
        values=np.ones(len(col), dtype="<f4").tobytes(),
        crow_indices=np.array(crow, dtype="<i8").tobytes(),
        col_indices=np.array(col, dtype="<i8").tobytes(),
    )
    return pb.Tensor(sparse_csr=csr, dtype=pb.DTYPE_FLOAT32, shape=shape)


FOUR = np.zeros(4, dtype="<f4").tobytes()

MALFORMED = {
    "odd bytes": dense(b"12345", [1]),
    "too few values": dense(FOUR, [5]),
    "negative size": dense(FOUR, [-4]),
    "two negative sizes": dense(FOUR, [-2, -2]),
    "product that wraps around": dense(FOUR, [1 << 62, 16]),
    "no columns": dense(b"", [3, 0]),
    "three dimensions": dense(FOUR, [2, 2, 1]),
    "unspecified dtype": dense(FOUR, [4], pb.DTYPE_UNSPECIFIED),
    "half precision": dense(FOUR, [8], pb.DTYPE_BFLOAT16),
    "sparse without shape": sparse([0, 1], [0], []),
    "sparse with negative rows": sparse([0, 1], [0], [-1, 4]),
    "sparse with too few rows": sparse([0, 1], [0], [2, 4]),
    "sparse rows that fall": sparse([0, 2, 1, 2], [0, 1], [3, 4]),
    "sparse rows beyond the values": sparse([0, 5], [0], [1, 4]),
    "sparse column beyond the width": sparse([0, 1], [4], [1, 4]),
    "sparse negative column": sparse([0, 1], [-1], [1, 4]),
    "sparse that unpacks to terabytes": sparse([0, 1], [0], [1, 1 << 40]),
}


@pytest.mark.parametrize("tensor", MALFORMED.values(), ids=MALFORMED)
def test_a_tensor_that_contradicts_itself_is_refused_by_name(tensor: pb.Tensor):
    with pytest.raises(LossInputError, match=r"data\[0\]\.loss_fn_inputs\['weights'\]"):
        protobuf.forward_backward(request_with(tensor))


MANY = {
    "datums": b"\x1a\x00" * 50_000,
    "chunks of a datum": b"\x1a\xa0\x8d\x06" + b"\x0a\x00" * 50_000,
    "keys of a config": b"\x2a\x03\x0a\x01k" * 50_000,
    "sizes of a shape": pb.ForwardBackwardRequest(
        data=[pb.Datum(loss_fn_inputs={"weights": pb.Tensor(shape=[0] * 100_000)})]
    ).SerializeToString(),
    "numbers that are no field of ours": b"\xf8\x01\x00" * 50_000,
}


@pytest.mark.parametrize("body", MANY.values(), ids=MANY)
def test_a_body_of_countless_parts_is_refused_before_it_is_parsed(body: bytes):
    with pytest.raises(BodyTooLargeError, match="more than 40000 parts"):
        check_parts(body, pb.ForwardBackwardRequest, most=40_000)


def test_a_large_batch_is_far_below_the_limit_of_parts():
    message = pb.ForwardBackwardRequest(model_id="m", loss_fn="ppo")
    for _ in range(1024):
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = bytes(400)
        for name in ("target_tokens", "logprobs", "advantages"):
            datum.loss_fn_inputs[name].CopyFrom(dense(bytes(400), [100]))
    body = message.SerializeToString()

    check_parts(body, pb.ForwardBackwardRequest, most=MAX_PARTS // 8)

    assert protobuf.receive_forward_backward(body) == message


@given(body=st.binary(max_size=200), zeros=st.integers(0, 3))
def test_counting_leaves_what_is_malformed_to_the_parser(body: bytes, zeros: int):
    with suppress(BodyTooLargeError):
        check_parts(bytes(zeros * 20_000) + body * 400, pb.ForwardBackwardRequest)


def test_json_of_countless_chunks_is_refused_by_name():
    many = {"chunks": [{}] * (json_models.MAX_CHUNKS + 1)}
    with pytest.raises(ValidationError, match="at most 4096 items"):
        json_models.ModelInputBody.model_validate(many)


def test_many_sparse_tensors_share_one_bound():
    message = request_with(sparse([0, 1], [0], [1, 1 << 20]))
    for i in range(70):
        message.data[0].loss_fn_inputs[f"t{i}"].CopyFrom(sparse([0, 0], [], [1, 1 << 20]))

    with pytest.raises(LossInputError, match="all sparse tensors of a request together"):
        protobuf.forward_backward(message)


def test_a_message_that_was_cut_is_no_message():
    body = request_with(dense(FOUR, [4])).SerializeToString()

    with pytest.raises(BodyError, match="ForwardBackwardRequest"):
        protobuf.parse_forward_backward(body[:-3])


@settings(max_examples=300, deadline=None)
@given(at=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
def test_no_damaged_byte_ends_in_anything_but_a_users_error(at: int, flip: int):
    body = bytearray(request_with(sparse([0, 1, 1, 2], [0, 3], [3, 4])).SerializeToString())
    body[at % len(body)] ^= flip

    with suppress(UserError):  # refused; what still reads is as good as another request
        protobuf.forward_backward(protobuf.parse_forward_backward(bytes(body)))


@pytest.mark.parametrize("pack", [zstandard.compress, gzip.compress], ids=["zstd", "gzip"])
def test_a_compressed_body_unpacks_to_itself(pack):
    body = bytes(range(256)) * 300
    encoding = "zstd" if pack is zstandard.compress else "gzip"

    assert decompress(pack(body), encoding, LIMIT) == body
    assert decompress(pack(b""), encoding, LIMIT) == b""


def test_frames_of_zstd_in_a_row_are_one_body():
    body = zstandard.compress(b"one ") + zstandard.compress(b"two")

    assert decompress(body, "zstd", LIMIT) == b"one two"


def zstd_bomb(size: int) -> bytes:
    """A frame that does not tell its size."""
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join([packer.compress(b"\0" * size), packer.flush()])


@pytest.mark.parametrize(
    ("bomb", "encoding"),
    [
        (zstd_bomb(64 << 20), "zstd"),
        (zstandard.compress(b"\0" * (64 << 20)), "zstd"),
        (gzip.compress(b"\0" * (64 << 20)), "gzip"),
    ],
    ids=["zstd of untold size", "zstd", "gzip"],
)
def test_a_small_body_that_unpacks_to_a_huge_one_is_refused(bomb: bytes, encoding: str):
    assert len(bomb) < LIMIT

    with pytest.raises(BodyTooLargeError, match=f"limit of {LIMIT} bytes"):
        decompress(bomb, encoding, LIMIT)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"not compressed at all", "zstd"),
        (b"not compressed at all", "gzip"),
        (zstandard.compress(b"abc" * 100)[:-4], "zstd"),
        (gzip.compress(b"abc" * 100)[:-4], "gzip"),
        (zlib.compress(b"abc"), "gzip"),
    ],
    ids=["not zstd", "not gzip", "zstd cut short", "gzip cut short", "zlib"],  # gzip's has the time
)
def test_a_damaged_compressed_body_is_refused(body: bytes, encoding: str):
    with pytest.raises(BodyError):
        decompress(body, encoding, LIMIT)


def test_an_encoding_we_do_not_speak_is_refused_by_name():
    with pytest.raises(EncodingError, match="'br'"):
        decompress(b"", "br", LIMIT)


def test_collecting_stops_at_the_limit():
    taken = 0

    async def endless():
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    with pytest.raises(BodyTooLargeError):
        asyncio.run(collect(endless(), LIMIT))
    assert taken == LIMIT // 1000 + 1
