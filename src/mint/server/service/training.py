"""Training models: made, trained, unloaded."""

import asyncio
from collections.abc import Callable

from mint.core.checkpoints import is_short_id
from mint.core.errors import NotFoundError, UserError
from mint.core.ids import ModelId, OperationId, Owner
from mint.core.lora import LoraSpec
from mint.core.operations import (
    CreateModel,
    ForwardBackward,
    OptimStep,
    ReverseKL,
    UnloadModel,
)
from mint.core.passes import check_pass
from mint.core.reverse_kl import check_reverse_kl
from mint.server.service import references
from mint.server.service.model_queue import ModelQueue, NewRun
from mint.server.service.models import ModelCatalog
from mint.server.service.submission import Prepared
from mint.server.store.records import Model
from mint.server.store.store import Store


class TrainingService:
    def __init__(self, store: Store, queue: ModelQueue, catalog: ModelCatalog) -> None:
        self._store = store
        self._queue = queue
        self._catalog = catalog

    async def create_model(
        self, owner: Owner, run: NewRun, base_model: str, lora: Callable[[], LoraSpec]
    ) -> OperationId:
        """Queue a new adapter on a base model.

        Raises:
            NotFoundError: no such session.
        """

        def prepare() -> Prepared:
            self._catalog.require(base_model)
            shape = lora()
            return Prepared(
                operation=CreateModel(model_id=run.model_id, base_model=base_model, lora=shape),
                model=run.model(owner, base_model, shape),
            )

        return await self._queue.put_new(owner, run, CreateModel.__name__, prepare)

    async def model(self, owner: Owner, model: ModelId) -> Model:
        """Raises: NotFoundError: unknown, or another owner's."""
        return await asyncio.to_thread(self._store.model, owner, model)

    async def unload(self, owner: Owner, model: ModelId) -> OperationId:
        """Queue the end of a model, behind what is queued for it."""
        operation = UnloadModel(model_id=model)
        return await self._queue.put(
            owner, model, None, UnloadModel.__name__, lambda _: Prepared(operation=operation)
        )

    async def forward_backward(
        self,
        owner: Owner,
        model: ModelId,
        seq_id: int | None,
        make: Callable[[], tuple[ForwardBackward, bytes | None]],
        *,
        forward_only: bool,
    ) -> OperationId:
        """Queue one pass over data.

        Args:
            make: reads the operation; with it, the form it came in if that is the one we keep.

        Raises:
            NotFoundError: no such model.
        """

        def prepare(row: Model) -> Prepared:
            operation, payload = make()
            checked = check_pass(operation, self._catalog.known(row.base_model))
            return Prepared(operation=operation, payload=payload, tokens=checked.tokens)

        kind = ForwardBackward.__name__
        return await self._queue.put(owner, model, seq_id, kind, prepare, is_harmless=forward_only)

    async def reverse_kl(
        self,
        owner: Owner,
        model: ModelId,
        seq_id: int | None,
        reference: str,
        make: Callable[[str, str | None], ReverseKL],
    ) -> OperationId:
        """Queue one gradient of a reverse KL.

        Args:
            reference: a checkpoint as references.find takes it, or a base model's name.
            make: reads the operation for a reference's base model and its checkpoint, if it is one.

        Raises:
            NotFoundError: no such model.
        """

        def prepare(row: Model) -> Prepared:
            base, weights = self._reference(owner, reference)
            served = self._catalog.require(base)
            operation = make(base if served is None else served.name, weights)
            checked = check_reverse_kl(operation, self._catalog.known(row.base_model), served)
            return Prepared(operation=operation, tokens=checked.tokens)

        return await self._queue.put(owner, model, seq_id, ReverseKL.__name__, prepare)

    def _reference(self, owner: Owner, text: str) -> tuple[str, str | None]:
        """(base model, checkpoint's path or None). Base models' names hold no "://"."""
        if "://" not in text and not is_short_id(text):
            return text, None
        try:
            found = references.find(self._store, owner, text)
        except NotFoundError as error:
            raise UserError(f"reference_model_path: {error}") from error
        return found.base_model, found.path

    async def optim_step(
        self, owner: Owner, model: ModelId, seq_id: int | None, make: Callable[[], OptimStep]
    ) -> OperationId:
        """Queue one optimizer step.

        Whether all passes before it succeeded is looked at when its turn comes.

        Raises:
            NotFoundError: no such model.
        """
        kind = OptimStep.__name__
        return await self._queue.put(
            owner, model, seq_id, kind, lambda _: Prepared(operation=make())
        )
