"""Checkpoints over HTTP: listed, fetched with their checksums, sent, removed."""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from mint.client.connect import Connection
from mint.core.errors import (
    AuthenticationError,
    ConfigError,
    MintError,
    NotFoundError,
    ServerFaultError,
    UserError,
)
from mint.wire.bundle import MEDIA_TYPE, File, Header, write_header

_ROUTE = "/api/v1/mint/checkpoint"
_PIECE_BYTES = 1 << 20
_PAGE = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

Progress = Callable[[int, int], None]
"""(bytes so far, bytes in all)."""


def _quiet(_: int, __: int) -> None: ...


class CheckpointStore:
    """The checkpoints of one server that its key may see.

    A reference is a path (`tinker://…` or `mint://…`) or a short id (`ckpt_…`). Errors are ours, in
    the server's own words.
    """

    def __init__(self, connection: Connection) -> None:
        self._http = httpx.Client(
            base_url=connection.base_url,
            headers={"X-API-Key": connection.api_key},
            timeout=httpx.Timeout(60, read=300),
            trust_env=not connection.is_embedded,
        )

    def __enter__(self) -> "CheckpointStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._http.close()

    def list(self) -> list[dict[str, Any]]:
        """All of the caller's checkpoints, newest first."""
        found: list[dict[str, Any]] = []
        while True:
            params = {"limit": _PAGE, "offset": len(found)}
            page = self._ask("GET", f"{_ROUTE}s", params=params).json()["checkpoints"]
            found += page
            if len(page) < _PAGE:
                return found

    def info(self, reference: str) -> dict[str, Any]:
        """One checkpoint, with its files."""
        return self._ask("GET", _ROUTE, params={"path": reference}).json()

    def delete(self, reference: str) -> None:
        self._ask("DELETE", _ROUTE, params={"path": reference})

    def server(self) -> dict[str, Any]:
        """Who answers, and with which base models."""
        return self._ask("GET", "/api/v1/mint/server").json()

    def download(
        self, reference: str, folder: Path, *, only: Sequence[str] | None = None,
        progress: Progress = _quiet,
    ) -> None:  # fmt: skip
        """Fetch a checkpoint's files into a new folder, each compared with its checksum.

        The folder is there whole or not at all.

        Args:
            only: names of the files that are wanted; None: all.

        Raises:
            ConfigError: the folder exists.
        """
        files = _announced(self.info(reference))
        wanted = [file for file in files if only is None or file.name in only]
        with new_folder(folder) as staging:
            total, done = sum(file.size_bytes for file in wanted), 0
            for file in wanted:
                for size in self._fetch(reference, file, staging / file.name):
                    done += size
                    progress(done, total)

    def upload(
        self, folder: Path, names: Sequence[str], *, name: str, base_model: str,
        progress: Progress = _quiet,
    ) -> str:  # fmt: skip
        """Send files of a folder as an adapter; returns the path of the checkpoint it became."""
        header = Header(
            name=name, base_model=base_model, files=[described(folder / file) for file in names]
        )
        head = write_header(header)
        self._ask("POST", f"{_ROUTE}s", params={"check": True}, content=head)

        def body() -> Iterator[bytes]:
            yield head
            done = 0
            for file in header.files:
                for piece in _pieces(folder / file.name):
                    yield piece
                    done += len(piece)
                    progress(done, header.size_bytes)

        told = self._ask("POST", f"{_ROUTE}s", content=body(), headers={"Content-Type": MEDIA_TYPE})
        return str(self._result(told.json()["request_id"])["path"])

    def _fetch(self, reference: str, file: File, target: Path) -> Iterator[int]:
        digest = hashlib.sha256()
        url = f"{_ROUTE}/{quote(file.name)}"
        with (
            target.open("wb") as out,
            self._http.stream("GET", url, params={"path": reference}) as answer,
        ):
            if answer.status_code >= 400:
                answer.read()
                raise _refusal(answer)
            for piece in answer.iter_bytes(_PIECE_BYTES):
                digest.update(piece)
                out.write(piece)
                yield len(piece)
        if digest.hexdigest() != file.sha256:
            raise ServerFaultError(
                f"{file.name} arrived with sha256 {digest.hexdigest()[:12]}…, but was announced "
                f"with {file.sha256[:12]}…. Try again; if it stays so, the file on the server is "
                "damaged."
            )

    def _result(self, request_id: str) -> dict[str, Any]:
        """Wait for an operation. Raises: UserError: it failed."""
        while True:
            answer = self._send("POST", "/api/v1/retrieve_future", json={"request_id": request_id})
            if answer.status_code == 408:
                continue
            if answer.status_code >= 400:
                raise _refusal(answer)
            result: dict[str, Any] = answer.json()
            if "error" in result:
                ours = result.get("category") == "server"
                raise (ServerFaultError if ours else UserError)(str(result["error"]))
            return result

    def _ask(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        answer = self._send(method, url, **arguments)
        if answer.status_code >= 400:
            raise _refusal(answer)
        return answer

    def _send(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        try:
            return self._http.request(method, url, **arguments)
        except httpx.HTTPError as error:
            raise ServerFaultError(
                f"{self._http.base_url} did not answer {method} {url}: "
                f"{type(error).__name__}: {error}"
            ) from error


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill: what is written into it appears under its name at the end, or not at all.

    Raises:
        ConfigError: something of that name exists.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists already. Name a folder that does not.")
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.partial-"))
    try:
        yield staging
        staging.chmod(0o755)  # mkdtemp's are for their owner alone
        os.rename(staging, folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _announced(info: Mapping[str, Any]) -> list[File]:
    files = [File.model_validate(file) for file in info["files"]]
    for file in files:
        if not _NAME.fullmatch(file.name):  # names become paths on this machine
            raise ServerFaultError(f"the server names a file we refuse: {file.name!r}.")
    return files


def described(path: Path) -> File:
    """A file's name, size and checksum."""
    digest = hashlib.sha256()
    for piece in _pieces(path):
        digest.update(piece)
    return File(name=path.name, size_bytes=path.stat().st_size, sha256=digest.hexdigest())


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _refusal(answer: httpx.Response) -> MintError:
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"{answer.url} answered {answer.status_code}: {answer.text[:300]}"
    if answer.status_code in (401, 403):
        return AuthenticationError(detail)
    if answer.status_code == 404:
        return NotFoundError(detail)
    return ServerFaultError(detail) if answer.status_code >= 500 else UserError(detail)
