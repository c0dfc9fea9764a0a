"""TorchEngine: the Engine protocol over one device.

Work is cut into turns, and `step` runs one: a decode round of a base model, a stretch of the
training passes that wait on it, or one weight operation. mint.engine.turns says whose turn it is, so
that a long pass does not freeze sampling, nor sampling a pass.
"""

import logging
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from mint.core.checkpoints import CheckpointRef
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
    InterpolateCheckpoints,
    Interpolated,
    LoadWeights,
    ModelReady,
    OptimStep,
    PassResult,
    PinSampler,
    ReleaseSampler,
    ResolveModel,
    Result,
    ReverseKL,
    Sample,
    SampleResult,
    SaveWeights,
    UnloadModel,
)
from mint.engine.protocol import Capacity, OnProgress, Outcome, Work, tell_nobody
from mint.engine.turns import DECODE_ROWS, Source, Turns, allowance
from mint.torch_engine import checkpoint
from mint.torch_engine.adapter_import import import_adapter
from mint.torch_engine.bases import Base, Bases
from mint.torch_engine.budget import Budget, budget, cut, needed_bytes
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.interpolation import interpolate
from mint.torch_engine.provenance import Origin, Provenance
from mint.torch_engine.reverse_kl import Reference, ReverseKLPass, check_vocabulary
from mint.torch_engine.samplers import SamplerShelf
from mint.torch_engine.settings import EngineSettings
from mint.torch_engine.trained import TrainedModel
from mint.torch_engine.training import TrainingPass

logger = logging.getLogger(__name__)

_SHELF_SHARE = 0.25
"""Share of the memory limit that samplers' weights may take before the oldest leave memory."""
_ALONE_TOKENS = 512
"""Forward tokens of a training turn while nobody samples: about two seconds for a model of 135 M
parameters on one core, after which new work is looked at."""

Turn = Callable[[], tuple[float, list[Outcome]]]
"""Runs one turn: (its cost in forward tokens, what ended with it)."""


@dataclass(eq=False)
class _Lane:
    """The operations of one model, in order of arrival, and the pass under way."""

    model_id: ModelId
    queue: deque[Work] = field(default_factory=deque)
    passing: TrainingPass | ReverseKLPass | None = None
    compared_with: Base | None = None
    """The base model of the reference that the pass under way reads."""


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
        self._turns = Turns()
        self._provenance = Provenance()
        self._drawing: dict[OperationId, Origin] = {}
        self._pinned_from: dict[str, ModelId] = {}
        self._cancelled: set[OperationId] = set()
        self._cancel_lock = threading.Lock()

    # ------------------------------------------------------------ protocol

    def served(self) -> tuple[ServedModel, ...]:
        return self._bases.served()

    def preload(self) -> None:
        for model in self.served() if self._settings.preload else ():
            try:
                self._bases.get(model.name, self._held_bytes())
            except MintError as error:
                logger.warning("base model %s is not loaded yet: %s", model.name, error)

    def start(self, work: Work) -> None:
        model_id = getattr(work.operation, "model_id", None)
        if model_id is None:
            self._loose.append(work)
        else:
            self._lanes.setdefault(model_id, _Lane(model_id)).queue.append(work)

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
        waiting = self._waiting()
        if waiting:
            source = self._turns.next(waiting)
            cost, ended = waiting[source]()
            self._turns = self._turns.charged(source, cost)
            outcomes += ended
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
            device=self._settings.device,
            dtype=self._settings.dtype,
            threads=torch.get_num_threads(),
        )

    def close(self) -> None:
        for base in self._bases.loaded():
            base.trainer.close()
        self._models.clear()
        self._lanes.clear()

    # ------------------------------------------------------------ turns

    def _waiting(self) -> dict[Source, Turn]:
        """Whoever has work now. Sampling comes first among equals."""
        waiting: dict[Source, Turn] = {}
        for base in self._bases.loaded():
            if base.decoding.busy:
                waiting[self._sampling(base)] = lambda base=base: self._round(base)
        passing, others = self._by_need()
        # Of all base models one micro-batch is under way: two would hold their activations
        # together, and on a GPU all backwards run on one thread, which a paused one keeps.
        halfway = {base: lanes for base, lanes in passing.items() if base.trainer.is_halfway}
        for base, lanes in (halfway or passing).items():
            waiting[self._training(base)] = lambda base=base, lanes=lanes: self._train(base, lanes)
        if others:
            source = Source("weights", self._settings.training_share)
            waiting[source] = lambda: self._advance(others[0])
        return waiting

    def _by_need(self) -> tuple[dict[Base, list[_Lane]], list[_Lane]]:
        """(lanes with a pass in front, by base model, which are advanced together; the others)."""
        passing: dict[Base, list[_Lane]] = {}
        others: list[_Lane] = []
        for lane in self._lanes.values():
            if not lane.queue:
                continue
            model = self._models.get(lane.model_id)
            if model and isinstance(lane.queue[0].operation, ForwardBackward | ReverseKL):
                passing.setdefault(model.base, []).append(lane)
            else:
                others.append(lane)
        return passing, others

    def _sampling(self, base: Base) -> Source:
        return Source(("sampling", base.name), 1 - self._settings.training_share)

    def _training(self, base: Base) -> Source:
        return Source(("training", base.name), self._settings.training_share)

    def _round(self, base: Base) -> tuple[float, list[Outcome]]:
        """One decode round; what ends with it is remembered by what drew it."""
        ended = base.decoding.round()
        for outcome in ended:
            origin = self._drawing.pop(outcome.operation_id, None)
            if origin and isinstance(outcome.result, SampleResult):
                for sequence in outcome.result.sequences:
                    self._provenance.note(origin, sequence.tokens, sequence.logprobs)
        return base.decoding.round_tokens, ended

    def _round_tokens(self) -> float | None:
        """Of the cheapest decode round now going on, in forward tokens; None while nobody samples."""
        busy = [base.decoding for base in self._bases.loaded() if base.decoding.busy]
        return min((max(d.round_tokens, DECODE_ROWS) for d in busy), default=None)

    def _train(self, base: Base, lanes: list[_Lane]) -> tuple[float, list[Outcome]]:
        """One turn of the passes that wait on a base model."""
        outcomes: list[Outcome] = []
        passes: dict[TrainingPass | ReverseKLPass, _Lane] = {}
        for lane in lanes:
            refused = _guarded(lane.queue[0], lambda lane=lane: self._begin(lane))
            if refused:
                outcomes.append(self._ended(lane, refused))
            elif lane.passing:
                passes[lane.passing] = lane
        if not passes:
            return DECODE_ROWS, outcomes
        rounds = self._round_tokens()
        tokens = _ALONE_TOKENS
        if rounds is not None:
            tokens = allowance(self._training(base), self._sampling(base), rounds)
        cost, failed = base.trainer.advance(
            list(passes), lambda: self._budget(base, passes), tokens
        )
        for each, lane in passes.items():
            if each in failed:
                outcomes.append(self._ended(lane, _failed(lane.queue[0], failed[each])))
            elif each.done:
                work = lane.queue[0]
                outcomes.append(self._ended(lane, Outcome(work.operation_id, self._passed(lane))))
        return cost, outcomes

    def _begin(self, lane: _Lane) -> None:
        if lane.passing:
            return
        work, model = lane.queue[0], self._models[lane.model_id]
        decoder = model.base.decoder
        match work.operation:
            case ForwardBackward() as operation:
                lane.passing = TrainingPass(decoder, model.adapter, operation)
            case ReverseKL() as operation:
                base = self._reference_base(operation, model.base)
                reference = self._reference(operation, work.folder, base.decoder)
                lane.passing = ReverseKLPass(decoder, model.adapter, reference, operation)
                lane.compared_with = base
                base.users += 1
            case other:
                raise AssertionError(f"{type(other).__name__} is no pass")

    def _reference_base(self, operation: ReverseKL, student: Base) -> Base:
        base = self._bases.get(operation.reference_base, self._held_bytes())
        if base is not student:
            check_vocabulary(self._bases.resolve(base.name), self._bases.resolve(student.name))
        return base

    def _reference(self, operation: ReverseKL, folder: Path | None, decoder: Decoder) -> Reference:
        path = operation.reference_weights
        if path is None:
            return Reference(decoder, None)
        return Reference(decoder, self._shelf.get(path, folder, decoder.targets, decoder.device))

    def _budget(self, base: Base, passes: Collection[TrainingPass | ReverseKLPass]) -> Budget:
        """Of the next batch; what is cached of prompts makes room for as much as it may have."""
        decoder, most, rounds = base.decoder, self._settings.batch_tokens, self._round_tokens()
        together = min(cut(decoder, most, rounds), sum(p.tokens_left for p in passes))
        tokens = max(together, *(p.longest_left for p in passes))
        free = self._bases.free_bytes(needed_bytes(decoder, tokens), self._held_bytes())
        return budget(decoder, free, most, rounds)

    def _passed(self, lane: _Lane) -> PassResult:
        """The result of a pass that is done, with what is known of the data's sampling."""
        model, running = self._models[lane.model_id], lane.passing
        assert running
        result = running.result()
        if _is_gradient_pass(lane.queue[0]):
            model.passes += 1
        if isinstance(running, ReverseKLPass):
            return result
        parity = self._provenance.of_pass(
            Origin.of(lane.model_id, model.adapter.version, running.loss.temperature),
            running.data.targets_P,
            running.data.values.get("logprobs"),
            running.logprobs_P,
            self._settings.parity_threshold,
        )
        return replace(result, metrics={**result.metrics, **parity})

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
                    self._drawing[work.operation_id] = self._origin(sample, weights.version)
                base.decoding.add(work.operation_id, sample, weights)
                return None
            case ReleaseSampler(sampler_id=sampler_id):
                self._shelf.release(sampler_id)
                self._pinned_from.pop(sampler_id, None)
                return Done()
            case ResolveModel(base_model=name):
                self._bases.resolve(name)
                return Done()
            case other:
                raise AssertionError(f"{type(other).__name__} belongs to a model")

    def _origin(self, sample: Sample, version: int) -> Origin:
        assert sample.weights is not None
        model_id = self._pinned_from.get(sample.weights)
        if model_id is None:  # saved weights: their path says whose they are
            model_id = ModelId(CheckpointRef.parse(sample.weights).model_id)
        return Origin.of(model_id, version, sample.params.temperature or 1.0)

    def _advance(self, lane: _Lane) -> tuple[float, list[Outcome]]:
        """The first operation in a model's lane, which is no pass."""
        outcome = _guarded(lane.queue[0], lambda: self._run(lane.queue[0]))
        assert outcome, "a weight operation ends within its turn"
        return DECODE_ROWS, [self._ended(lane, outcome)]

    def _ended(self, lane: _Lane, outcome: Outcome) -> Outcome:
        """The first operation of a lane has an outcome: on to its next, behind the other lanes."""
        work = lane.queue.popleft()
        lane.passing = None
        if lane.compared_with:
            lane.compared_with.users -= 1
            lane.compared_with = None
        failed = isinstance(outcome.result, Failure)
        if failed and _is_gradient_pass(work) and lane.model_id in self._models:
            self._models[lane.model_id].spoil(work.operation_id)
        del self._lanes[lane.model_id]
        if lane.queue:
            self._lanes[lane.model_id] = lane
        return outcome

    def _run(self, work: Work) -> Result:
        """A model's operation that is no pass on it."""
        operation = work.operation
        match operation:
            case CreateModel():
                return self._create(operation)
            case CreateModelFrom():
                return self._create_from(operation, _folder(work))
            case ImportAdapter():
                assert work.source is not None
                return self._import(operation, work.source, _folder(work))
            case InterpolateCheckpoints():
                return self._interpolate(operation, work)
            case UnloadModel(model_id=model_id):
                if model := self._models.pop(model_id, None):
                    model.base.users -= 1
                    self._provenance.forget_before(model_id, sys.maxsize)
                return Done()
        model = self._model(operation)
        match operation:
            case OptimStep(params=params):
                stepped = model.optim_step(params)
                self._provenance.forget_before(operation.model_id, stepped.weights_version)
                return stepped
            case DiscardGradients(reason=reason):
                model.discard_gradients()
                raise UserError(reason)
            case SaveWeights():
                return model.save(_folder(work), operation.path)
            case LoadWeights(with_optimizer=with_optimizer):
                model.load(_folder(work), with_optimizer)
                self._provenance.forget_before(operation.model_id, model.adapter.version)
                return Done()
            case PinSampler(sampler_id=sampler_id):
                self._shelf.pin(sampler_id, model.adapter.pinned())
                self._pinned_from[sampler_id] = operation.model_id
                return Done()
            case other:
                raise AssertionError(f"{type(other).__name__} belongs to no model")

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

    def _interpolate(self, operation: InterpolateCheckpoints, work: Work) -> Interpolated:
        base = self._bases.get(operation.base_model, self._held_bytes())
        return interpolate(
            operation, base.decoder, work.terms, _folder(work),
            lambda wanted: self._bases.free_bytes(wanted, self._held_bytes()),
        )  # fmt: skip

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


def _is_gradient_pass(work: Work) -> bool:
    operation = work.operation
    if isinstance(operation, ForwardBackward):
        return not operation.forward_only
    return isinstance(operation, ReverseKL)


def _withdrawn(work: Work) -> Outcome:
    return Outcome(work.operation_id, Failure("cancelled by the client", Fault.CANCELLED))


def _guarded(work: Work, run: Callable[[], Result | None]) -> Outcome | None:
    """Run a slice; what goes wrong becomes this operation's outcome and nobody else's."""
    try:
        result = run()
    except Exception as error:
        return _failed(work, error)
    return None if result is None else Outcome(work.operation_id, result)


def _failed(work: Work, error: Exception) -> Outcome:
    if isinstance(error, MintError):
        return Outcome(work.operation_id, Failure(str(error), error.fault))
    kind = type(work.operation).__name__
    logger.error("%s %s failed", kind, work.operation_id, exc_info=error)
    message = f"{kind} failed inside the engine: {error!r}"
    return Outcome(work.operation_id, Failure(message, Fault.SERVER))
