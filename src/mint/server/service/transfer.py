"""Checkpoints as files: listed, handed out, and taken in."""

import asyncio
import hashlib
import json
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from mint.core.checkpoints import CheckpointKind, CheckpointRef, check_name
from mint.core.errors import CapacityError, NotFoundError, ServerFaultError
from mint.core.ids import ModelId, OperationId, Owner
from mint.core.operations import ImportAdapter
from mint.core.peft import ADAPTER_FILE, CONFIG_FILE
from mint.server.service import references
from mint.server.service.models import ModelCatalog
from mint.server.service.submission import Submissions
from mint.server.store.records import Checkpoint, NewSession
from mint.server.store.store import Store
from mint.wire.bundle import File, Header, Reader
from mint.wire.errors import BodyError, BodyTooLargeError

OPTIMIZER_FILE = "optimizer.safetensors"
MANIFEST_FILE = "manifest.json"
ACCEPTED = (ADAPTER_FILE, CONFIG_FILE, OPTIMIZER_FILE, MANIFEST_FILE)
"""Files of an upload. The last two come together, from a training checkpoint that was downloaded."""

MAX_UPLOAD_BYTES = 8 << 30
"""An adapter of rank 256 on a 70B model with its optimizer state takes about that."""

_STALE_S = 86_400.0
"""An upload this old waits for nothing any more: the engine takes them within minutes."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint with what its folder holds."""

    checkpoint: Checkpoint
    files: list[File]


class TransferService:
    """
    Args:
        data: the server's data folder. Uploads arrive below `uploads/`, as NAME.PID.partial until
            they are whole; the engine turns them into checkpoints.
    """

    def __init__(
        self, store: Store, submissions: Submissions, catalog: ModelCatalog, data: Path
    ) -> None:
        self._store = store
        self._submissions = submissions
        self._catalog = catalog
        self._data = data

    async def list(self, owner: Owner, limit: int, offset: int) -> list[Checkpoint]:
        """The owner's checkpoints, newest first."""
        return await asyncio.to_thread(self._store.list_checkpoints, owner, None, limit, offset)

    async def path(self, owner: Owner, reference: str) -> str:
        """The path of a checkpoint. Raises as references.find."""
        found = await asyncio.to_thread(references.find, self._store, owner, reference)
        return found.path

    async def describe(self, owner: Owner, reference: str) -> StoredCheckpoint:
        """A checkpoint and its files, each with size and sha256 as they were written.

        Raises:
            UserError, NotFoundError: see references.find.
            ServerFaultError: its folder is gone or unreadable.
        """

        def read() -> StoredCheckpoint:
            found = references.find(self._store, owner, reference)
            return StoredCheckpoint(found, _files(self._data / found.folder))

        return await asyncio.to_thread(read)

    async def file(self, owner: Owner, reference: str, name: str) -> Path:
        """Where one file of a checkpoint lies. Raises as `describe`."""
        stored = await self.describe(owner, reference)
        if name not in {file.name for file in stored.files}:
            raise NotFoundError(f"{stored.checkpoint.path} has no file {name!r}.")
        return self._data / stored.checkpoint.folder / name

    async def receive(self, owner: Owner, body: Reader) -> tuple[OperationId, str]:
        """Take an adapter in, and queue its becoming a checkpoint.

        Nothing of it stays if the body is cut off, damaged or not what it announced.

        Returns:
            The operation, and the path of the checkpoint to be.

        Raises:
            BodyError, BodyTooLargeError: the body is not what it should be.
            UserError: its name cannot be one, or no base model of that name is served.
            CapacityError: the disk has no room for it.
        """
        header = await self.check(owner, body)
        upload = await self._store_files(header, body)
        return await self._queue(owner, header, upload)

    async def check(self, owner: Owner, body: Reader) -> Header:
        """Read an upload's announcement and refuse what would not be taken. Raises as `receive`.

        A refusal while the body is still under way can cut the client off before it reads why, so
        clients send the announcement alone first.
        """
        header = await body.header(ACCEPTED)
        check_name(header.name)
        _check_files(header)
        _check_room(self._data, header.size_bytes)
        await self._catalog.find(owner, header.base_model)
        return header

    async def _store_files(self, header: Header, body: Reader) -> str:
        upload = secrets.token_hex(16)
        folder = self._data / "uploads" / upload
        partial = folder.with_name(f"{upload}.{os.getpid()}.partial")
        await asyncio.to_thread(partial.mkdir, mode=0o700, parents=True)
        try:
            for file in header.files:
                await _receive(partial / file.name, file, body)
            await body.end()
            partial.rename(folder)
        except BaseException:  # a client that went away too
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return upload

    async def _queue(self, owner: Owner, header: Header, upload: str) -> tuple[OperationId, str]:
        """Returns as `receive`."""
        is_training = OPTIMIZER_FILE in {file.name for file in header.files}
        kind = CheckpointKind.TRAINING if is_training else CheckpointKind.SAMPLER
        new = NewSession(
            owner=owner,
            idempotency_key=None,
            tags=("import",),
            display_name=f"import of {header.name}",
        )

        def path(run: ModelId) -> str:
            return str(CheckpointRef(run, kind, header.name))

        def make(run: ModelId) -> ImportAdapter:
            return ImportAdapter(
                model_id=run, base_model=header.base_model, path=path(run), upload=upload
            )

        operation_id, run = await self._submissions.submit_in_own_run(
            new, ImportAdapter.__name__, make, "imported"
        )
        return operation_id, path(run)


def remove_unfinished(data: Path) -> None:
    """Remove uploads that a server received in part and died. At the start of a server."""
    for folder in (data / "uploads").glob("*.partial"):
        pid = folder.name.split(".")[1]
        if not pid.isdecimal() or int(pid) == os.getpid() or not _is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def remove_stale(data: Path) -> None:
    """Remove uploads whose import was lost with an engine process."""
    for folder in (data / "uploads").glob("*"):
        if time.time() - folder.stat().st_mtime > _STALE_S:
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's, so it lives
    return True


def _check_files(header: Header) -> None:
    names = {file.name for file in header.files}
    if not {ADAPTER_FILE, CONFIG_FILE} <= names:
        raise BodyError(f"files: an adapter is {ADAPTER_FILE} with {CONFIG_FILE}.")
    if (OPTIMIZER_FILE in names) and MANIFEST_FILE not in names:
        raise BodyError(f"files: {OPTIMIZER_FILE} says something only with its {MANIFEST_FILE}.")
    if header.size_bytes > MAX_UPLOAD_BYTES:
        raise BodyTooLargeError(
            f"the upload has {header.size_bytes} bytes; this server takes {MAX_UPLOAD_BYTES}."
        )


def _check_room(folder: Path, size_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if 2 * size_bytes > free:  # as it came, and as a checkpoint in float32
        raise CapacityError(
            f"the upload's {size_bytes} bytes need {2 * size_bytes} on the server's disk, which "
            f"has {free} left. The operator makes room, or deletes old checkpoints."
        )


async def _receive(path: Path, file: File, body: Reader) -> None:
    digest = hashlib.sha256()

    def write(piece: bytes) -> None:
        digest.update(piece)
        target.write(piece)

    with path.open("wb") as target:
        async for piece in body.file(file.size_bytes):
            await asyncio.to_thread(write, piece)
        target.flush()
        await asyncio.to_thread(os.fsync, target.fileno())
    if digest.hexdigest() != file.sha256:
        raise BodyError(
            f"{file.name} arrived with sha256 {digest.hexdigest()[:12]}…, but was announced with "
            f"{file.sha256[:12]}…. Send it again."
        )


def _files(folder: Path) -> list[File]:
    """The files of a checkpoint, as its manifest has signed for them; and the manifest."""
    try:
        text = (folder / MANIFEST_FILE).read_bytes()
        signed = json.loads(text)["files"]
        listed = [
            File(name=name, size_bytes=size, sha256=digest)
            for name, (size, digest) in sorted(signed.items())
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ServerFaultError(
            f"checkpoint folder {folder.name} is unreadable: {error!r}."
        ) from error
    own = File(name=MANIFEST_FILE, size_bytes=len(text), sha256=hashlib.sha256(text).hexdigest())
    return [*listed, own]
