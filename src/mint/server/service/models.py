"""Base models on offer, and their tokenizers' files."""

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path

from mint.core.errors import NotFoundError, OverloadedError, UnknownModelError, UserError
from mint.core.ids import Owner
from mint.core.models import ServedModel
from mint.core.operations import ResolveModel
from mint.server.service.link import Link
from mint.server.service.submission import Prepared, Submission, Submissions
from mint.server.store.store import Store

RESOLVE_TIMEOUT_S = 45.0
"""Longest wait for a base model to be found. Clients give a submit 60 s; they come back."""

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "config.json",
)
"""What a client needs to encode and decode as the model does. Named one by one: a model's folder
may hold anything."""


@dataclass(frozen=True)
class TokenizerFile:
    """One file of a tokenizer, as offered."""

    name: str
    size_bytes: int
    sha256: str


class ModelCatalog:
    """Which base models there are.

    Args:
        on_demand: names beyond the list are looked for when first used.
    """

    def __init__(
        self, store: Store, link: Link, submissions: Submissions, *, on_demand: bool
    ) -> None:
        self._store = store
        self._link = link
        self._submissions = submissions
        self.on_demand = on_demand

    async def served(self) -> list[ServedModel]:
        return await asyncio.to_thread(self._store.served)

    def known(self, base_model: str) -> ServedModel | None:
        """The base model of that name, if it has been found already. For threads."""
        return next((model for model in self._store.served() if model.name == base_model), None)

    def require(self, base_model: str) -> ServedModel | None:
        """As `known`; None only where the engine may still find it. For threads.

        Raises:
            UnknownModelError: it is not served here.
        """
        found = self.known(base_model)
        if found is None and not self.on_demand:
            raise self._unknown(base_model)
        return found

    async def find(self, owner: Owner, base_model: str) -> ServedModel:
        """The base model of that name, looked for if this server does that on demand.

        Raises:
            UnknownModelError: it is not served here, or was not found.
            OverloadedError: it is still being looked for.
        """
        found = await asyncio.to_thread(self.require, base_model)
        if found is not None:
            return found
        operation_id = await self._submissions.submit(
            Submission(
                owner=owner,
                kind=ResolveModel.__name__,
                scope=f"resolve/{base_model}",
                seq_id=None,
                prepare=lambda: Prepared(operation=ResolveModel(base_model=base_model)),
            )
        )
        await self._link.ended(operation_id, RESOLVE_TIMEOUT_S)
        record = await asyncio.to_thread(self._store.operation, owner, operation_id)
        if record.error is not None:
            raise UnknownModelError(record.error)
        if not record.status.ended:
            raise OverloadedError(
                f"base model {base_model!r} is still being looked for or converted; the engine is "
                f"{self._link.health().state}: {self._link.health().detail}. Ask again."
            )
        found = await asyncio.to_thread(self.known, base_model)
        if found is None:
            raise self._unknown(base_model)
        return found

    async def tokenizer_files(self, owner: Owner, base_model: str) -> list[TokenizerFile]:
        """The files of a base model's tokenizer.

        Raises: as `find`.
        """
        folder = Path((await self.find(owner, base_model)).tokenizer_folder)
        return await asyncio.to_thread(_describe, folder)

    async def tokenizer_file(self, owner: Owner, base_model: str, name: str) -> Path:
        """Where one of them lies.

        Raises:
            NotFoundError: the tokenizer has no such file.
        """
        folder = Path((await self.find(owner, base_model)).tokenizer_folder)
        path = folder / name
        if name not in _TOKENIZER_FILES or not path.is_file():
            raise NotFoundError(f"the tokenizer of {base_model!r} has no file {name!r}.")
        return path

    def _unknown(self, base_model: str) -> UserError:
        names = ", ".join(model.name for model in self._store.served())
        return UnknownModelError(
            f"base model {base_model!r} is not served here. Available: {names or 'none yet'}. "
            "The server's operator adds models with `mint serve --model NAME`."
        )


def _describe(folder: Path) -> list[TokenizerFile]:
    return [
        TokenizerFile(name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for name in _TOKENIZER_FILES
        if (path := folder / name).is_file()
    ]
