import io
import tarfile
from pathlib import Path

import pytest

from mint.server.service import tarball


@pytest.mark.parametrize("sizes", [(0,), (1, 511, 512, 513), (1 << 20, (1 << 20) + 7)])
def test_a_tar_has_the_size_it_was_announced_with_and_the_files(
    tmp_path: Path, sizes: tuple[int, ...]
):
    files = []
    for number, size in enumerate(sizes):
        files.append(tmp_path / f"file-{number}.bin")
        files[-1].write_bytes(bytes([number]) * size)

    packed = b"".join(tarball.pieces_of(files))

    assert len(packed) == tarball.size_of(files)
    with tarfile.open(fileobj=io.BytesIO(packed)) as opened:
        assert opened.getnames() == [file.name for file in files]
        for file, member in zip(files, opened.getmembers(), strict=True):
            extracted = opened.extractfile(member)
            assert extracted is not None
            assert extracted.read() == file.read_bytes()


def test_a_long_name_survives(tmp_path: Path):
    file = tmp_path / ("n" * 180 + ".bin")
    file.write_bytes(b"x")

    packed = b"".join(tarball.pieces_of([file]))

    assert len(packed) == tarball.size_of([file])
    with tarfile.open(fileobj=io.BytesIO(packed)) as opened:
        assert opened.getnames() == [file.name]
