"""Checkpoints handed out by links that need no key."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from mint.core.checkpoints import CheckpointRef
from mint.core.errors import NotFoundError
from mint.core.ids import Owner
from mint.server.auth.signing import Signer
from mint.server.store.store import Store

LINK_LIFETIME = timedelta(hours=1)
"""Clients sign anew when less than five minutes are left, and a large file takes a while."""


@dataclass(frozen=True)
class Links:
    """Tokens by file name, and until when they open anything."""

    tokens: dict[str, str]
    expires: datetime


class DownloadService:
    """
    Args:
        data: the server's data folder; checkpoints' folders are below it.
    """

    def __init__(
        self, store: Store, data: Path, signer: Signer, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._data = data
        self._signer = signer
        self._clock = clock

    async def whole(self, owner: Owner, path: str) -> Links:
        """A link to all of a checkpoint, under its name.

        Raises:
            UserError: it is no path.
            NotFoundError: unknown, expired, or another owner's private one.
        """
        ref = CheckpointRef.parse(path)
        await self.files(owner, str(ref))
        expires = self._clock() + LINK_LIFETIME
        return Links({ref.name: self._signer.sign([owner, str(ref)], expires)}, expires)

    async def single(self, owner: Owner, path: str) -> Links:
        """A link to each file of a checkpoint. Raises as `whole`."""
        ref = str(CheckpointRef.parse(path))
        expires = self._clock() + LINK_LIFETIME
        return Links(
            {
                file.name: self._signer.sign([owner, ref, file.name], expires)
                for file in await self.files(owner, ref)
            },
            expires,
        )

    async def open(self, token: str) -> list[Path] | Path:
        """The files that a link opens: all of a checkpoint's, or the one it is for.

        Whose link it is must still be allowed to read the checkpoint: what has been deleted or
        hidden meanwhile stays closed.

        Raises:
            AuthenticationError: no link of ours, or an old one.
            NotFoundError: the checkpoint is not there any more.
        """
        owner, path, *name = self._signer.read(token)
        files = await self.files(Owner(owner), path)
        if not name:
            return files
        for file in files:
            if file.name == name[0]:
                return file
        raise NotFoundError(f"checkpoint {path!r} has no file {name[0]!r} any more.")

    async def files(self, owner: Owner, path: str) -> list[Path]:
        """The files of a checkpoint, by name.

        Raises:
            NotFoundError: unknown, expired, another owner's private one; or its files are gone.
        """

        def look() -> list[Path]:
            folder = self._data / self._store.checkpoint(owner, path).folder
            found = sorted(file for file in folder.glob("*") if file.is_file())
            if not found:
                raise NotFoundError(f"the files of checkpoint {path!r} are gone from the server.")
            return found

        return await asyncio.to_thread(look)
