"""A folder for one example of a property: pytest's own is made once per test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def temporary_folder() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder)
