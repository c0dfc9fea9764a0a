"""Compressed request bodies, with a bound on what they may become.

A few kilobytes of zstd or gzip can unpack to gigabytes, so output is produced in slices and
counted before the next one is asked for.
"""

import zlib
from collections.abc import AsyncIterable

import zstandard

from mint.wire.errors import BodyError, BodyTooLargeError, EncodingError

ENCODINGS = ("identity", "zstd", "gzip")

_MAX_WINDOW = 1 << 27
"""Memory a zstd frame may ask for: 128 MiB, what `zstd --long=27` uses."""
_SLICE = 1024
"""Compressed bytes fed at a time. A zstd block of 4 bytes makes at most 128 KiB, so one slice
makes at most 32 MiB beyond the limit."""


async def collect(chunks: AsyncIterable[bytes], limit_bytes: int) -> bytes:
    """All of a body, refused as soon as it is above the limit.

    Raises:
        BodyTooLargeError: it is.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit_bytes:
            raise BodyTooLargeError(
                f"the request body is above this server's limit of {limit_bytes} bytes. "
                "Send fewer datums at a time."
            )
        parts.append(chunk)
    return b"".join(parts)


def decompress(body: bytes, encoding: str | None, limit_bytes: int) -> bytes:
    """Undo a `Content-Encoding`.

    Raises:
        EncodingError: we do not speak it.
        BodyTooLargeError: the body unpacks to more than `limit_bytes`.
        BodyError: the body is damaged or cut off.
    """
    name = (encoding or "identity").strip().lower()
    try:
        if name == "identity":
            return body
        if name == "zstd":
            return _zstd(body, limit_bytes)
        if name == "gzip":
            return _gzip(body, limit_bytes)
    except (zstandard.ZstdError, zlib.error) as error:
        raise BodyError(f"the body is no intact {name}: {error}.") from error
    raise EncodingError(f"Content-Encoding {name!r} is not spoken here; use one of {ENCODINGS}.")


def _zstd(body: bytes, limit_bytes: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    frame = decompressor.decompressobj()
    parts: list[bytes] = []
    size = 0
    for start in range(0, len(body), _SLICE):
        piece = body[start : start + _SLICE]
        while piece:  # a body may hold several frames, one after the other
            if frame.eof:
                frame = decompressor.decompressobj()
            parts.append(frame.decompress(piece))
            size += len(parts[-1])
            _check_size(size, limit_bytes)
            piece = frame.unused_data if frame.eof else b""
    if body and not frame.eof:
        raise BodyError("the zstd body is cut off before its end.")
    return b"".join(parts)


def _gzip(body: bytes, limit_bytes: int) -> bytes:
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    unpacked = stream.decompress(body, limit_bytes + 1)
    _check_size(len(unpacked), limit_bytes)
    if body and not stream.eof:
        raise BodyError("the gzip body is cut off before its end.")
    return unpacked


def _check_size(size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise BodyTooLargeError(
            f"the request body unpacks to more than this server's limit of {limit_bytes} bytes. "
            "Send fewer datums at a time."
        )
