"""A folder of files as one tar, made while it is sent."""

import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_PIECE_BYTES = 1 << 20


def size_of(files: Sequence[Path]) -> int:
    """Bytes of the tar of these files."""
    return sum(len(_head(file)) + _padded(file.stat().st_size) for file in files) + _END


def pieces_of(files: Sequence[Path]) -> Iterator[bytes]:
    """The tar of these files, under their bare names. They must not change meanwhile."""
    for file in files:
        with file.open("rb") as opened:
            yield _head(file)
            size = 0
            while piece := opened.read(_PIECE_BYTES):
                size += len(piece)
                yield piece
        yield bytes(_padded(size) - size)
    yield bytes(_END)


_END = 2 * tarfile.BLOCKSIZE
"""Two empty blocks end a tar."""


def _head(file: Path) -> bytes:
    info = tarfile.TarInfo(file.name)
    info.size = file.stat().st_size
    info.mtime = int(file.stat().st_mtime)
    return info.tobuf(tarfile.PAX_FORMAT)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
