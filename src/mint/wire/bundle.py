"""Several files in one request body: one line of JSON that announces them, then their bytes.

One body, so that an upload is there whole or not at all, and cut nowhere but where it says:

    {"name": "…", "base_model": "…", "files": [{"name", "size_bytes", "sha256"}, …]}\\n
    <bytes of the first file><bytes of the second>…
"""

import re
from collections.abc import AsyncIterator, Sequence

from pydantic import BaseModel, ValidationError

from mint.wire.errors import BodyError

MEDIA_TYPE = "application/x-mint-bundle"
MAX_HEADER_BYTES = 64 << 10

_SHA256 = re.compile(r"[0-9a-f]{64}")


class File(BaseModel):
    """One file as it is announced."""

    name: str
    size_bytes: int
    sha256: str


class Header(BaseModel):
    """What a bundle holds and what is to become of it."""

    name: str
    base_model: str
    files: list[File]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def write_header(header: Header) -> bytes:
    """The first line of a body."""
    return header.model_dump_json().encode() + b"\n"


def read_header(line: bytes, allowed: Sequence[str]) -> Header:
    """The first line of a body, without its line break.

    Args:
        allowed: the names that files may have.

    Raises:
        BodyError: it is no header, or names a file that is not allowed.
    """
    try:
        header = Header.model_validate_json(line)
    except ValidationError as error:
        raise BodyError(
            f"the upload's first line is no header: {error.errors()[0]['msg']}."
        ) from error
    names = [file.name for file in header.files]
    for file in header.files:
        if file.name not in allowed or names.count(file.name) > 1:
            raise BodyError(f"files: {file.name!r}; each of {', '.join(allowed)} may come once.")
        if file.size_bytes < 0 or not _SHA256.fullmatch(file.sha256):
            raise BodyError(f"files: {file.name} needs its size_bytes and its sha256 in hex.")
    return header


class Reader:
    """A body as it arrives, taken apart where its header says."""

    _PIECE_BYTES = 1 << 20

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = bytearray()

    async def header(self, allowed: Sequence[str]) -> Header:
        """Raises: BodyError: see read_header."""
        while (end := self._rest.find(b"\n")) < 0:
            if len(self._rest) > MAX_HEADER_BYTES or not await self._more():
                raise BodyError("the upload has no header line.")
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return read_header(line, allowed)

    async def file(self, size_bytes: int) -> AsyncIterator[bytes]:
        """The next `size_bytes` bytes, in pieces.

        Raises:
            BodyError: the body ends before.
        """
        left = size_bytes
        while left:
            while len(self._rest) < min(left, self._PIECE_BYTES):
                if not await self._more():
                    raise BodyError(f"the upload ended {left - len(self._rest)} bytes too early.")
            piece = bytes(self._rest[:left])
            del self._rest[: len(piece)]
            left -= len(piece)
            yield piece

    async def end(self) -> None:
        """Raises: BodyError: there are more bytes than were announced."""
        if self._rest or await self._more():
            raise BodyError("the upload has more bytes than it announced.")

    async def _more(self) -> bool:
        async for chunk in self._chunks:
            if chunk:
                self._rest += chunk
                return True
        return False
