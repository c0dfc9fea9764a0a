"""How many parts a protobuf message has, counted before anything is made of them.

Two bytes can be a whole empty message, of a few hundred bytes once it is an object: 3 kB of zstd
became 32 MB of empty datums, and those 4 GB and minutes of work (measured). So parts are counted
on the bytes as they came, and counting stops at the limit.
"""

from collections.abc import Mapping
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from mint.wire.errors import BodyTooLargeError

MAX_PARTS = 1 << 18
"""Fields of all messages of one body. A datum has about 25, so this is ten times the datums that we
let a client put into one request."""
_FEW_BYTES = 1 << 16
"""A smaller body cannot hold enough parts to matter."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def check_parts(body: bytes, message: type[Message], most: int = MAX_PARTS) -> None:
    """Refuse a body that is made of too many parts. One that is malformed is left to the parser.

    Args:
        message: what the body claims to be.

    Raises:
        BodyTooLargeError: it has more than `most`.
    """
    if len(body) < _FEW_BYTES:
        return
    left = most
    fields, at, end = _fields(message.DESCRIPTOR), 0, len(body)
    outer: list[tuple[Mapping[int, _Inner], int]] = []
    while True:
        while at >= end:
            if not outer:
                return
            fields, end = outer.pop()
        left -= 1
        tag, at = _varint(body, at)
        size, kind = 0, tag & 7
        if kind == _VARINT:
            _, at = _varint(body, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        elif kind == _LENGTH:
            size, at = _varint(body, at)
            inner = fields.get(tag >> 3)
            if isinstance(inner, Descriptor):
                outer.append((fields, end))
                fields, end, size = _fields(inner), min(at + size, end), 0
            elif inner is not None:
                left -= size // inner
        at += size
        if left < 0:
            raise BodyTooLargeError(
                f"the request body has more than {most} parts (datums, chunks, tensors and their "
                "fields). Send fewer datums at a time, and each tensor's numbers as one field."
            )


_Inner = Descriptor | int
"""What a field with a length holds, if not bytes: a message, or numbers of at least so many bytes
each."""


@cache
def _fields(message: Descriptor) -> Mapping[int, _Inner]:
    found: dict[int, _Inner] = {}
    for field in message.fields:
        if field.message_type is not None:
            found[field.number] = field.message_type
        elif field.type not in (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING):
            found[field.number] = 1
    return found


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; beyond the body's end, and for an endless one, that end."""
    if at < len(body) and body[at] < 0x80:  # most are one byte
        return body[at], at + 1
    value = shift = 0
    for byte in body[at : at + 10]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, len(body)
