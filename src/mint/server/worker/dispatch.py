"""From a stored operation to the engine's Work, and from its outcome to what the store keeps."""

import dataclasses
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

from mint.core.checkpoints import CheckpointRef, check_name
from mint.core.errors import EngineLostError, NotFoundError, UserError
from mint.core.ids import ModelId, Owner, SamplerId
from mint.core.lora import LoraSpec
from mint.core.operations import (
    BEGINNINGS,
    CreateModel,
    CreateModelFrom,
    DiscardGradients,
    Failure,
    ImportAdapter,
    Imported,
    InterpolateCheckpoints,
    LoadWeights,
    ModelReady,
    Operation,
    OptimStep,
    PinSampler,
    ReleaseSampler,
    ResolveModel,
    Result,
    ReverseKL,
    Sample,
    Saved,
    SaveWeights,
    StepResult,
    UnloadModel,
)
from mint.engine.protocol import Work
from mint.server.store.records import (
    NO_EFFECTS,
    Effects,
    ModelState,
    NewCheckpoint,
    PendingOperation,
)
from mint.server.store.store import Store
from mint.server.worker.recovery import lost_message
from mint.wire import payloads


@dataclass
class Alive:
    """What the engine of this process holds. All else in the store is of an earlier one."""

    models: set[ModelId] = dataclasses.field(default_factory=set)
    samplers: set[SamplerId] = dataclasses.field(default_factory=set)


class Dispatch:
    """Prepares operations and interprets their outcomes; computes nothing, writes no row."""

    def __init__(
        self,
        store: Store,
        data: Path,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._store = store
        self._data = data
        self._clock = clock
        self._new_id = new_id
        self.alive = Alive()

    # ------------------------------------------------------------ going in

    def work(self, row: PendingOperation, kind: str, payload: bytes) -> Work:
        """The engine's view of a stored operation, with the folder it reads or writes.

        Raises:
            MintError: it cannot be started; the text is for its caller.
        """
        operation = payloads.decode(kind, payload)
        self._check_alive(operation, row.owner)
        if isinstance(operation, OptimStep):
            operation = self._step(operation, row)
        folder = self._folder(operation, row.owner)
        terms = self._terms(operation, row.owner)
        return Work(row.operation_id, operation, folder, self._source(operation), terms)

    def _step(self, step: OptimStep, row: PendingOperation) -> OptimStep | DiscardGradients:
        """The step, or its refusal: a batch with a hole in it is no batch. The client sends its
        step all the same, so the gradient gathered from the rest is dropped and the step says why.
        """
        failed = self._store.failed_pass_before(row.operation_id, step.model_id)
        if failed is None:
            return step
        why = self._store.operation(row.owner, failed).error
        reason = (
            f"optim_step refused: forward_backward (request {failed}) failed since the last step, "
            "so the gradient is incomplete. It was cleared, and the weights are unchanged. Correct "
            f"the data and send the whole batch again. What failed: {why}"
        )
        return DiscardGradients(model_id=step.model_id, reason=reason)

    def _check_alive(self, operation: Operation, owner: Owner) -> None:
        """Refuse what needs weights that are not in this process's engine."""
        match operation:
            case CreateModel() | CreateModelFrom() | ImportAdapter() | InterpolateCheckpoints():
                return
            case ReleaseSampler() | ResolveModel():
                return
            case Sample(sampler_id=sampler_id, weights=weights):
                if weights == sampler_id and sampler_id not in self.alive.samplers:
                    self._refuse_sampler(sampler_id, owner)
            case _:
                if operation.model_id not in self.alive.models:
                    self._refuse_model(operation.model_id, owner)

    def _refuse_sampler(self, sampler_id: SamplerId, owner: Owner) -> NoReturn:
        model_id = self._store.sampler(owner, sampler_id).model_id
        if model_id is not None and model_id not in self.alive.models:
            self._refuse_model(model_id, owner)
        raise UserError(
            f"sampling session {sampler_id!r} holds no weights: pinning them failed, or they were "
            "released. Make a new sampling client."
        )

    def _refuse_model(self, model_id: ModelId, owner: Owner) -> NoReturn:
        match self._store.model(owner, model_id).state:
            case ModelState.FAILED | ModelState.CREATING:
                raise UserError(
                    f"model {model_id!r} was not created; the answer to its creation says why."
                )
            case ModelState.UNLOADED:
                raise UserError(
                    f"model {model_id!r} has been unloaded, at a client's wish or because its "
                    "session ended. Create one from its newest checkpoint."
                )
        what = "the engine process was restarted"
        raise EngineLostError(lost_message(self._store, what, model_id))

    def _folder(self, operation: Operation, owner: Owner) -> Path | None:
        match operation:
            case SaveWeights():
                self._check_free(operation, owner)
                return self._data / "checkpoints" / self._new_id()
            case ImportAdapter() | InterpolateCheckpoints():
                return self._data / "checkpoints" / self._new_id()
            case CreateModelFrom(path=path) | LoadWeights(path=path):
                return self._saved(path, owner)
            case Sample(sampler_id=sampler_id, weights=str(weights)) if weights != sampler_id:
                return self._saved(weights, owner)
            case ReverseKL(reference_weights=str(path)):
                return self._saved(path, owner)
            case _:
                return None

    def _terms(self, operation: Operation, owner: Owner) -> tuple[Path, ...]:
        if not isinstance(operation, InterpolateCheckpoints):
            return ()
        return tuple(self._saved(path, owner) for path in operation.source_paths)

    def _source(self, operation: Operation) -> Path | None:
        if not isinstance(operation, ImportAdapter):
            return None
        folder = self._data / "uploads" / operation.upload
        if not folder.is_dir():
            raise UserError("the uploaded files are gone. Send them again.")
        return folder

    def _check_free(self, operation: SaveWeights, owner: Owner) -> None:
        path = _spelled(operation.path)
        check_name(CheckpointRef.parse(path).name)
        if operation.overwrite:
            return
        try:
            self._store.checkpoint(owner, path)
        except NotFoundError:
            return
        raise UserError(
            f"there is a checkpoint {path!r} already. Choose another name, or save with "
            "overwrite=True."
        )

    def _saved(self, path: str, owner: Owner) -> Path:
        folder = self._data / self._store.checkpoint(owner, _spelled(path)).folder
        if not folder.is_dir():
            raise NotFoundError(
                f"the files of checkpoint {path!r} are missing from {folder}. Were they removed by "
                "hand?"
            )
        return folder

    # ---------------------------------------------------------- coming out

    def effects(self, row: PendingOperation, work: Work, result: Result | Failure) -> Effects:
        """What the end of an operation changes in the store; notes what lives now."""
        operation = work.operation
        if isinstance(result, Failure):
            return _effects_of_failure(operation)
        match operation, result:
            case ((CreateModel() | CreateModelFrom()), ModelReady(base_model=base, lora=lora)):
                self.alive.models.add(operation.model_id)
                return Effects(
                    model_id=operation.model_id,
                    model_state=ModelState.READY,
                    model_base=base,
                    model_lora=lora,
                )
            case OptimStep(model_id=model_id), StepResult(weights_version=version):
                return Effects(model_id=model_id, weights_version=version)
            case SaveWeights(), Saved():
                assert work.folder is not None
                return Effects(checkpoint=self._checkpoint(row, operation, result, work.folder))
            case ((ImportAdapter() | InterpolateCheckpoints()), Imported(lora=lora)):
                assert work.folder is not None
                return Effects(
                    model_id=operation.model_id,
                    model_state=ModelState.UNLOADED,
                    model_lora=lora,
                    checkpoint=self._written(row, operation, result, work.folder),
                )
            case UnloadModel(model_id=model_id), _:
                self.alive.models.discard(model_id)
                return Effects(model_id=model_id, model_state=ModelState.UNLOADED)
            case PinSampler(sampler_id=sampler_id), _:
                self.alive.samplers.add(sampler_id)
            case ReleaseSampler(sampler_id=sampler_id), _:
                self.alive.samplers.discard(sampler_id)
                return Effects(delete_sampler=sampler_id)
        return NO_EFFECTS

    def _checkpoint(
        self, row: PendingOperation, operation: SaveWeights, saved: Saved, folder: Path
    ) -> NewCheckpoint:
        model = self._store.model(row.owner, operation.model_id)
        ttl = operation.ttl_seconds
        return dataclasses.replace(
            self._row(row, operation, model.base_model, model.lora, folder, saved.size_bytes),
            expires_at=None if ttl is None else self._clock() + timedelta(seconds=ttl),
            user_metadata=operation.user_metadata or {},
        )

    def _written(
        self,
        row: PendingOperation,
        operation: ImportAdapter | InterpolateCheckpoints,
        result: Imported,
        folder: Path,
    ) -> NewCheckpoint:
        """The checkpoint of a run that never lived; a sum says what it is the sum of."""
        written = self._row(
            row, operation, operation.base_model, result.lora, folder, result.size_bytes
        )
        if isinstance(operation, ImportAdapter):
            return written
        terms = zip(operation.coefficients, operation.source_paths, strict=True)
        formula = " + ".join(f"{coefficient!r} * {path}" for coefficient, path in terms)
        return dataclasses.replace(written, user_metadata={"sum": formula})

    def _row(
        self,
        row: PendingOperation,
        operation: SaveWeights | ImportAdapter | InterpolateCheckpoints,
        base_model: str,
        lora: LoraSpec,
        folder: Path,
        size_bytes: int,
    ) -> NewCheckpoint:
        """What a checkpoint that was just written is recorded as."""
        ref = CheckpointRef.parse(operation.path)
        return NewCheckpoint(
            path=str(ref),
            owner=row.owner,
            model_id=operation.model_id,
            kind=ref.kind.value,
            name=ref.name,
            base_model=base_model,
            lora=lora,
            folder=folder.relative_to(self._data).as_posix(),
            size_bytes=size_bytes,
        )


def encode_result(work: Work, result: Result) -> bytes:
    """A result as it is stored. A save's answer needs its path, which the engine never sees."""
    if isinstance(result, Saved) and isinstance(work.operation, SaveWeights):
        result = dataclasses.replace(result, path=_spelled(work.operation.path))
    return payloads.encode_result(result)


def refused(row: PendingOperation) -> Effects:
    """The effects of an operation that was not started."""
    if row.kind in BEGINNINGS:
        return Effects(model_id=row.model_id, model_state=ModelState.FAILED)
    return NO_EFFECTS


def _effects_of_failure(operation: Operation) -> Effects:
    if isinstance(
        operation, CreateModel | CreateModelFrom | ImportAdapter | InterpolateCheckpoints
    ):
        return Effects(model_id=operation.model_id, model_state=ModelState.FAILED)
    return NO_EFFECTS


def _spelled(path: str) -> str:
    """mint:// and tinker:// are the same checkpoint; the store knows the latter."""
    return str(CheckpointRef.parse(path))
