"""Checkpoints and samplers made from training models, and models made from checkpoints."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mint.core.checkpoints import CheckpointKind, CheckpointRef, check_name, check_ttl, is_short_id
from mint.core.errors import NotFoundError, UnsupportedError, UserError
from mint.core.ids import ModelId, OperationId, Owner, sampler_id
from mint.core.lora import LoraSpec
from mint.core.operations import CreateModelFrom, LoadWeights, PinSampler, SaveWeights
from mint.server.service import references
from mint.server.service.model_queue import ModelQueue, NewRun
from mint.server.service.models import ModelCatalog
from mint.server.service.submission import Prepared
from mint.server.store.records import Checkpoint, Model, NewSampler
from mint.server.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Save:
    """What a save was asked to do. `name` None: none was given."""

    name: str | None
    kind: CheckpointKind
    ttl_seconds: int | None
    overwrite: bool
    user_metadata: Mapping[str, str]


class WeightService:
    def __init__(self, store: Store, queue: ModelQueue, catalog: ModelCatalog) -> None:
        self._store = store
        self._queue = queue
        self._catalog = catalog

    async def create_model_from(
        self,
        owner: Owner,
        run: NewRun,
        path: str,
        *,
        with_optimizer: bool,
        base_model: str | None,
        check: Callable[[], None],
    ) -> OperationId:
        """Queue a new adapter that begins as a checkpoint: base model and shape are its own.

        Args:
            base_model: as the client believes it to be; another one is refused.
            check: raises UserError for the rest of what was asked.

        Raises:
            NotFoundError: no such session.
        """

        def prepare() -> Prepared:
            check()
            found = self._readable(owner, path, with_optimizer=with_optimizer)
            if base_model not in (None, found.base_model):
                raise UnsupportedError(
                    f"{found.path} was trained on {found.base_model!r}; it cannot be loaded on "
                    f"{base_model!r}. Leave base_model out."
                )
            self._catalog.require(found.base_model)
            return Prepared(
                operation=CreateModelFrom(
                    model_id=run.model_id, path=found.path, with_optimizer=with_optimizer
                ),
                model=run.model(owner, found.base_model, found.lora),
            )

        return await self._queue.put_new(owner, run, CreateModelFrom.__name__, prepare)

    async def save(
        self,
        owner: Owner,
        model: ModelId,
        seq_id: int | None,
        save: Save,
        check: Callable[[], None] = lambda: None,
    ) -> OperationId:
        """Queue a checkpoint.

        Args:
            check: raises UserError for the rest of what was asked.

        Raises:
            NotFoundError: no such model.
        """

        def prepare(_: Model) -> Prepared:
            check()
            operation = _save_operation(model, save)
            if not save.overwrite:
                self._check_free(owner, operation.path)
            return Prepared(operation=operation)

        return await self._queue.put(owner, model, seq_id, SaveWeights.__name__, prepare)

    async def pin_sampler(
        self,
        owner: Owner,
        model: ModelId,
        seq_id: int | None,
        sampling_session_seq_id: int,
        check: Callable[[], None],
    ) -> OperationId:
        """Queue giving the model's weights, as they will be then, to a new sampling session.

        Args:
            check: raises UserError for the rest of what was asked.

        Raises:
            NotFoundError: no such model.
        """

        def prepare(row: Model) -> Prepared:
            check()
            sampler = sampler_id(row.session_id, sampling_session_seq_id)
            return Prepared(
                operation=PinSampler(model_id=model, sampler_id=sampler),
                sampler=NewSampler(
                    sampler_id=sampler,
                    session_id=row.session_id,
                    owner=owner,
                    base_model=row.base_model,
                    weights=sampler,
                    model_id=model,
                ),
            )

        return await self._queue.put(owner, model, seq_id, PinSampler.__name__, prepare)

    async def load(
        self,
        owner: Owner,
        model: ModelId,
        seq_id: int | None,
        path: str,
        *,
        with_optimizer: bool,
        check: Callable[[], None],
    ) -> OperationId:
        """Queue replacing a model's weights by a checkpoint's.

        Args:
            check: raises UserError for the rest of what was asked.

        Raises:
            NotFoundError: no such model.
        """

        def prepare(row: Model) -> Prepared:
            check()
            found = self._readable(owner, path, with_optimizer=with_optimizer)
            if found.base_model != row.base_model:
                raise UserError(
                    f"{found.path} was trained on {found.base_model!r}, but model {model!r} stands "
                    f"on {row.base_model!r}."
                )
            if not _fits(found.lora, row.lora, with_optimizer=with_optimizer):
                raise UserError(
                    f"{found.path} has {found.lora}, but model {model!r} has {row.lora}. Make a "
                    "model of that shape: create_training_client_from_state(path)."
                )
            return Prepared(
                operation=LoadWeights(
                    model_id=model, path=found.path, with_optimizer=with_optimizer
                )
            )

        return await self._queue.put(owner, model, seq_id, LoadWeights.__name__, prepare)

    def _readable(self, owner: Owner, path: str, *, with_optimizer: bool) -> Checkpoint:
        if with_optimizer and not is_short_id(path):
            _check_has_optimizer(path)
        try:
            found = references.find(self._store, owner, path)
        except NotFoundError as error:
            raise UserError(str(error)) from error  # accepted work: its result says so
        if with_optimizer:
            _check_has_optimizer(found.path)
        return found

    def _check_free(self, owner: Owner, path: str) -> None:
        try:
            self._store.checkpoint(owner, path)
        except NotFoundError:
            return
        raise UserError(
            f"{path} exists already. Choose another name, or pass overwrite=True where the call "
            "has it."
        )


def _check_has_optimizer(path: str) -> None:
    ref = CheckpointRef.parse(path)
    if ref.kind is not CheckpointKind.TRAINING:
        raise UserError(
            f"{ref} holds no optimizer state. Load it without the optimizer, or load one that "
            "save_state() made."
        )


def _fits(saved: LoraSpec, model: LoraSpec, *, with_optimizer: bool) -> bool:
    """Whether a model can take an adapter over. Without the optimizer's state, which means
    something in one shape only, it may have more linears (B = 0) and another alpha (B scaled)."""
    if with_optimizer:
        return replace(saved, seed=None) == replace(model, seed=None)
    switches = ("train_attn", "train_mlp", "train_unembed")
    return saved.rank == model.rank and all(
        getattr(model, switch) or not getattr(saved, switch) for switch in switches
    )


def _save_operation(model: ModelId, save: Save) -> SaveWeights:
    if save.name is None:
        raise UserError("the checkpoint has no name. Give one, such as save_state('step-10').")
    return SaveWeights(
        model_id=model,
        path=str(CheckpointRef(model, save.kind, check_name(save.name))),
        overwrite=save.overwrite,
        ttl_seconds=check_ttl(save.ttl_seconds),
        user_metadata=save.user_metadata,
    )
