"""TorchEngine: the Engine protocol over one device.

Work is cut into slices, and `step` runs one: a decode round of a base model, a micro-batch of a
training pass, or one weight operation. Sources of slices take turns, so a long pass does not
freeze sampling, nor sampling a pass.
"""

import logging
import shutil
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from mint.core.errors import Fault, MintError, NotFoundError, UserError
from mint.core.ids import ModelId, OperationId
from mint.core.models import ServedModel
from mint.core.operations import (
    CreateModel,
    CreateModelFrom,
    DiscardGradients,
    Done,
    Failure,
    ForwardBackward,
    ImportAdapter,
    Imported,
    LoadWeights,
    ModelReady,
    OptimStep,
    PinSampler,
    ReleaseSampler,
    ResolveModel,
    Result,
    Sample,
    SaveWeights,
    UnloadModel,
)
from mint.engine.protocol import Capacity, OnProgress, Outcome, Work, tell_nobody
from mint.torch_engine import checkpoint
from mint.torch_engine.adapter_import import import_adapter
from mint.torch_engine.bases import Bases
from mint.torch_engine.samplers import SamplerShelf
from mint.torch_engine.settings import EngineSettings
from mint.torch_engine.trained import TrainedModel
from mint.torch_engine.training import TrainingPass

logger = logging.getLogger(__name__)

_SHELF_SHARE = 0.25
"""Share of the memory limit that samplers' weights may take before the oldest leave memory."""


@dataclass(eq=False)
class _Lane:
    """The operations of one model, in order of arrival, and the pass under way."""

    queue: deque[Work] = field(default_factory=deque)
    passing: TrainingPass | None = None


class TorchEngine:
    """Trains adapters and samples from them in this process; see mint.engine.protocol.Engine."""

    def __init__(self, settings: EngineSettings, on_progress: OnProgress = tell_nobody) -> None:
        """Finds every base model of the settings; raises what Bases.resolve raises."""
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self._settings = settings
        self._bases = Bases(settings, on_progress)
        self._shelf = SamplerShelf(
            int(_SHELF_SHARE * self._bases.limit_bytes), settings.scratch / "samplers"
        )
        self._models: dict[ModelId, TrainedModel] = {}
        self._lanes: dict[ModelId, _Lane] = {}
        self._loose: deque[Work] = deque()
        self._turn = 0
        self._cancelled: set[OperationId] = set()
        self._cancel_lock = threading.Lock()

    # ------------------------------------------------------------ protocol

    def served(self) -> tuple[ServedModel, ...]:
        return self._bases.served()

    def start(self, work: Work) -> None:
        model_id = getattr(work.operation, "model_id", None)
        if model_id is None:
            self._loose.append(work)
        else:
            self._lanes.setdefault(model_id, _Lane()).queue.append(work)

    def cancel(self, operation_id: OperationId) -> None:
        with self._cancel_lock:
            self._cancelled.add(operation_id)

    @property
    def busy(self) -> bool:
        return (
            bool(self._loose)
            or any(lane.queue for lane in self._lanes.values())
            or any(base.decoding.busy for base in self._bases.loaded())
        )

    def step(self) -> list[Outcome]:
        outcomes = self._admit()
        sources = self._sources()
        if sources:
            self._turn += 1
            outcomes += sources[self._turn % len(sources)]()
        return outcomes

    def capacity(self) -> Capacity:
        loaded = self._bases.loaded()
        return Capacity(
            running_sequences=sum(base.decoding.running for base in loaded),
            waiting_sequences=sum(base.decoding.waiting for base in loaded),
            max_sequences=self._settings.max_sequences,
            cached_tokens=sum(base.decoding.cached_tokens for base in loaded),
            prompt_tokens=self._bases.sampling.prompt_tokens,
            reused_prompt_tokens=self._bases.sampling.reused_tokens,
            sequences_set_back=self._bases.sampling.set_back,
            loaded_models=tuple(base.name for base in loaded),
            adapters=len(self._models) + len(self._shelf),
            memory_bytes=self._held_bytes() + sum(base.nbytes for base in loaded),
            memory_limit_bytes=self._bases.limit_bytes,
        )

    def close(self) -> None:
        self._models.clear()
        self._lanes.clear()

    # ------------------------------------------------------------ slices

    def _sources(self) -> list[Callable[[], list[Outcome]]]:
        """Whoever has a slice to run now."""
        lanes = [
            lambda model_id=model_id, lane=lane: self._advance(model_id, lane)
            for model_id, lane in self._lanes.items()
            if lane.queue
        ]
        rounds = [base.decoding.round for base in self._bases.loaded() if base.decoding.busy]
        return [*lanes, *rounds]

    def _admit(self) -> list[Outcome]:
        """Take in what belongs to no model: samples join the decoding of their base at once."""
        outcomes: list[Outcome] = []
        with self._cancel_lock:
            cancelled, self._cancelled = self._cancelled, set()
        while self._loose:
            work = self._loose.popleft()
            if work.operation_id in cancelled:
                outcomes.append(_withdrawn(work))
                continue
            outcome = _guarded(work, lambda work=work: self._take_in(work))
            if outcome:
                outcomes.append(outcome)
        for operation_id in cancelled:
            for base in self._bases.loaded():
                base.decoding.cancel(operation_id)
        return outcomes

    def _take_in(self, work: Work) -> Result | None:
        match work.operation:
            case Sample() as sample:
                base = self._bases.get(sample.base_model, self._held_bytes())
                weights = None
                if sample.weights is not None:
                    weights = self._shelf.get(
                        sample.weights, work.folder, base.decoder.targets, base.decoder.device
                    )
                base.decoding.add(work.operation_id, sample, weights)
                return None
            case ReleaseSampler(sampler_id=sampler_id):
                self._shelf.release(sampler_id)
                return Done()
            case ResolveModel(base_model=name):
                self._bases.resolve(name)
                return Done()
            case other:
                raise AssertionError(f"{type(other).__name__} belongs to a model")

    def _advance(self, model_id: ModelId, lane: _Lane) -> list[Outcome]:
        """Run one slice of the first operation in a model's lane."""
        work = lane.queue[0]
        outcome = _guarded(work, lambda: self._run(work, lane))
        if outcome is None:
            return []
        lane.queue.popleft()
        lane.passing = None
        failed = isinstance(outcome.result, Failure)
        is_pass = isinstance(work.operation, ForwardBackward) and not work.operation.forward_only
        if failed and is_pass and model_id in self._models:
            self._models[model_id].spoil(work.operation_id)
        if not lane.queue:
            del self._lanes[model_id]
        return [outcome]

    def _run(self, work: Work, lane: _Lane) -> Result | None:
        """One slice of a model's operation; its result once it has ended."""
        operation = work.operation
        match operation:
            case CreateModel():
                return self._create(operation)
            case CreateModelFrom():
                return self._create_from(operation, _folder(work))
            case ImportAdapter():
                assert work.source is not None
                return self._import(operation, work.source, _folder(work))
            case ForwardBackward():
                return self._pass(operation, lane)
            case UnloadModel(model_id=model_id):
                if model := self._models.pop(model_id, None):
                    model.base.users -= 1
                return Done()
        model = self._model(operation)
        match operation:
            case OptimStep(params=params):
                return model.optim_step(params)
            case DiscardGradients(reason=reason):
                model.discard_gradients()
                raise UserError(reason)
            case SaveWeights():
                return model.save(_folder(work), operation.path)
            case LoadWeights(with_optimizer=with_optimizer):
                model.load(_folder(work), with_optimizer)
                return Done()
            case PinSampler(sampler_id=sampler_id):
                self._shelf.pin(sampler_id, model.adapter.pinned())
                return Done()
            case other:
                raise AssertionError(f"{type(other).__name__} belongs to no model")

    def _pass(self, operation: ForwardBackward, lane: _Lane) -> Result | None:
        model = self._model(operation)
        if lane.passing is None:
            lane.passing = TrainingPass(model.base.decoder, model.adapter, operation)
        if not lane.passing.done:
            lane.passing.run_slice()
        if not lane.passing.done:
            return None
        if not operation.forward_only:
            model.passes += 1
        return lane.passing.result()

    # ------------------------------------------------------------ models

    def _create(self, operation: CreateModel) -> ModelReady:
        self._refuse_twice(operation.model_id)
        base = self._bases.get(operation.base_model, self._held_bytes())
        self._bases.admit_adapter(base, operation.lora, self._held_bytes())
        model = TrainedModel.new(base, operation.model_id, operation.lora)
        return self._keep(operation.model_id, model)

    def _create_from(self, operation: CreateModelFrom, folder: Path) -> ModelReady:
        self._refuse_twice(operation.model_id)
        manifest = checkpoint.read_manifest(folder)
        base = self._bases.get(manifest.base_model, self._held_bytes())
        self._bases.admit_adapter(base, manifest.lora, self._held_bytes())
        model = TrainedModel.from_checkpoint(base, folder, operation.with_optimizer)
        return self._keep(operation.model_id, model)

    def _import(self, operation: ImportAdapter, source: Path, folder: Path) -> Imported:
        try:
            base = self._bases.get(operation.base_model, self._held_bytes())
            return import_adapter(operation, base.decoder, source, folder)
        finally:
            shutil.rmtree(source, ignore_errors=True)

    def _refuse_twice(self, model_id: ModelId) -> None:
        if model_id in self._models:
            raise UserError(f"model {model_id} exists already.")

    def _keep(self, model_id: ModelId, model: TrainedModel) -> ModelReady:
        model.base.users += 1
        self._models[model_id] = model
        return ModelReady(base_model=model.base.name, lora=model.adapter.layout.spec)

    def _model(self, operation: object) -> TrainedModel:
        model_id: ModelId = getattr(operation, "model_id")  # noqa: B009 (every ModelOperation)
        if model_id not in self._models:
            raise NotFoundError(
                f"model {model_id} is not loaded: it was unloaded, its session ended, or its "
                "creation failed. Create a new one, from a checkpoint if there is one."
            )
        return self._models[model_id]

    def _held_bytes(self) -> int:
        return self._shelf.nbytes + sum(model.nbytes for model in self._models.values())


def _folder(work: Work) -> Path:
    assert work.folder is not None, f"{type(work.operation).__name__} comes with a folder"
    return work.folder


def _withdrawn(work: Work) -> Outcome:
    return Outcome(work.operation_id, Failure("cancelled by the client", Fault.CANCELLED))


def _guarded(work: Work, run: Callable[[], Result | None]) -> Outcome | None:
    """Run a slice; what goes wrong becomes this operation's outcome and nobody else's."""
    try:
        result = run()
    except MintError as error:
        return Outcome(work.operation_id, Failure(str(error), error.fault))
    except Exception as error:
        kind = type(work.operation).__name__
        logger.exception("%s %s failed", kind, work.operation_id)
        return Outcome(
            work.operation_id,
            Failure(f"{kind} failed inside the engine: {error!r}", Fault.SERVER),
        )
    return None if result is None else Outcome(work.operation_id, result)
