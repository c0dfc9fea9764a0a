"""Tokenizers from the server, without a hub: fetched, checked, cached, loaded.

The server names the files of a model's tokenizer with their sizes and sha256; they are kept in
`<MINT_HOME>/tokenizers/<digest>/`, where the digest covers names and hashes, so a folder never
changes once it exists.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from mint.client import local_server, settings
from mint.client.connect import Connection, connect
from mint.core.errors import ConfigError, ServerFaultError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROUTE = "/api/v1/mint/tokenizer"
MAX_BYTES = 256 * 2**20
"""Largest vocabularies take some 40 MiB; more than this is a mistake."""
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class TokenizerFile:
    """One file as the server announces it."""

    name: str
    size_bytes: int
    sha256: str


def tokenizer_folder(model: str) -> Path | None:
    """A local folder with the tokenizer and config.json of a base model, from the server that the
    settings mean, without a client of it.

    The embedded server is asked if it runs. It is started for a model that it is set up with, and
    for no other: whoever only wants to read a tokenizer may want no server.

    Returns:
        None if there is no server to ask, or it is not one of ours.

    Raises:
        ServerFaultError: it cannot be reached, or does not have this model.
        ConfigError: the settings contradict each other.
    """
    config = settings.read()
    if config.base_url is None and not _embedded_may_know(model, config.embedded):
        return None
    return folder_for(connect(config), model, config.embedded.home)


def _embedded_may_know(model: str, local: settings.EmbeddedSettings) -> bool:
    if not local.enabled:
        return False
    is_running = local_server.running(local.home) is not None
    return is_running or model in {entry.partition("=")[0] for entry in local.models}


def folder_for(connection: Connection, model: str, home: Path) -> Path | None:
    """A local folder with the tokenizer of a served model, fetched if it is not there yet.

    Returns:
        None if the server hands no tokenizers out (it is not one of ours).

    Raises:
        ServerFaultError: the server cannot be reached, or what it sent is not what it announced.
    """
    with httpx.Client(
        base_url=connection.base_url,
        headers={"X-API-Key": connection.api_key},
        timeout=60,
        trust_env=not connection.is_embedded,
    ) as http:
        files = _announced(http, model)
        if files is None:
            return None
        folder = home / "tokenizers" / _digest(files)
        if not _is_whole(folder, files):
            _fetch(http, model, files, folder)
    return folder


@lru_cache(maxsize=32)
def load(folder: Path) -> "PreTrainedTokenizerBase":
    """The tokenizer in a folder, as transformers has it; needs no torch."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError(
            f"get_tokenizer() needs transformers ({error}): pip install transformers"
        ) from error
    return AutoTokenizer.from_pretrained(str(folder))


def _announced(http: httpx.Client, model: str) -> Sequence[TokenizerFile] | None:
    answer = _get(http, ROUTE, model)
    if answer.status_code == 404:
        return None
    _expect_ok(answer, model)
    try:
        listed = answer.json()["files"]
        files = [TokenizerFile(f["name"], int(f["size_bytes"]), f["sha256"]) for f in listed]
    except (ValueError, KeyError, TypeError):
        raise ServerFaultError(f"{answer.url} did not answer with a list of files.") from None
    for file in files:
        # Names become paths on this machine: nothing but plain names.
        if not _FILE.fullmatch(file.name) or not _SHA256.fullmatch(file.sha256):
            raise ServerFaultError(f"{answer.url} names a file we refuse: {file.name!r}.")
    if not files or sum(file.size_bytes for file in files) > MAX_BYTES:
        raise ServerFaultError(
            f"{answer.url} announces {len(files)} files of "
            f"{sum(file.size_bytes for file in files)} bytes; expected 1 or more, up to {MAX_BYTES}."
        )
    return files


def _digest(files: Sequence[TokenizerFile]) -> str:
    whole = "".join(sorted(f"{file.name} {file.sha256}\n" for file in files))
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _is_whole(folder: Path, files: Sequence[TokenizerFile]) -> bool:
    """Whether every file is there with its announced content."""
    try:
        return all(
            hashlib.sha256((folder / file.name).read_bytes()).hexdigest() == file.sha256
            for file in files
        )
    except OSError:
        return False


def _fetch(http: httpx.Client, model: str, files: Sequence[TokenizerFile], folder: Path) -> None:
    """Fetch into a folder of our own and rename it: nobody sees half a tokenizer."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".fetching-"))
    try:
        for file in files:
            answer = _get(http, f"{ROUTE}/{file.name}", model)
            _expect_ok(answer, model)
            got = hashlib.sha256(answer.content).hexdigest()
            if got != file.sha256:
                raise ServerFaultError(
                    f"{answer.url} sent {len(answer.content)} bytes with sha256 {got[:12]}…, but "
                    f"announced {file.size_bytes} with {file.sha256[:12]}…. Try again; if it "
                    "stays so, the server's files have been changed under it."
                )
            (staging / file.name).write_bytes(answer.content)
        _put(staging, folder, files)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _put(staging: Path, folder: Path, files: Sequence[TokenizerFile]) -> None:
    try:
        os.replace(staging, folder)
    except OSError:
        if _is_whole(folder, files):
            return  # another process was quicker
        shutil.rmtree(folder, ignore_errors=True)  # damaged: not what its name says
        with contextlib.suppress(OSError):
            os.replace(staging, folder)
        if not _is_whole(folder, files):
            raise ServerFaultError(f"cannot write the tokenizer to {folder}.") from None


def _get(http: httpx.Client, path: str, model: str) -> httpx.Response:
    params: dict[str, Any] = {"model": model}
    try:
        return http.get(path, params=params)
    except httpx.HTTPError as error:
        raise ServerFaultError(
            f"cannot fetch the tokenizer of {model} from {http.base_url}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _expect_ok(answer: httpx.Response, model: str) -> None:
    if answer.status_code != 200:
        raise ServerFaultError(
            f"cannot fetch the tokenizer of {model}: {answer.url} answered "
            f"{answer.status_code}: {answer.text[:300]}"
        )
