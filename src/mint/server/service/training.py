"""Training models: made, trained, unloaded."""

import asyncio
from collections.abc import Callable

from mint.core.ids import ModelId, OperationId, Owner
from mint.core.lora import LoraSpec
from mint.core.operations import (
    CreateModel,
    ForwardBackward,
    OptimStep,
    UnloadModel,
)
from mint.core.passes import check_pass
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
