"""An engine that computes nothing, for what is around engines: same inputs, same outputs.

A Sample of `max_tokens` tokens takes so many steps; one with seed ENDLESS runs until cancelled. The
base model "slow" loads until there is a file "loaded" in the data folder.
"""

import time
from pathlib import Path

import numpy as np

from mint.core.errors import Fault, UnknownModelError
from mint.core.lora import LoraSpec
from mint.core.models import ServedModel
from mint.core.operations import (
    CreateModel,
    CreateModelFrom,
    DiscardGradients,
    Done,
    Failure,
    ForwardBackward,
    ModelReady,
    OptimStep,
    PassResult,
    ResolveModel,
    Result,
    Sample,
    SampleResult,
    Saved,
    SaveWeights,
    StepResult,
)
from mint.core.sampling import SampledSequence, StopReason
from mint.engine.protocol import Capacity, Doing, OnProgress, Outcome, Work, tell_nobody
from mint.server.settings import ServerSettings

ENDLESS = 999


def build(settings: ServerSettings, on_progress: OnProgress) -> "FakeEngine":
    if "missing" in settings.models:
        raise UnknownModelError("no base model 'missing' here. Available: tiny.")
    return FakeEngine(settings.models, on_progress, settings.data)


class FakeEngine:
    def __init__(
        self,
        models: tuple[str, ...] = ("tiny",),
        on_progress: OnProgress = tell_nobody,
        data: Path = Path(),
    ) -> None:
        self._on_progress = on_progress
        self._data = data
        self._served = [served(name) for name in models]
        self._work: list[Work] = []
        self._cancelled: set[str] = set()
        self._drawn: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        self.started: list[str] = []
        self.most_inside = 0
        self.closed = False

    def served(self) -> tuple[ServedModel, ...]:
        return tuple(self._served)

    def start(self, work: Work) -> None:
        self.started.append(work.operation_id)
        self._work.append(work)
        self.most_inside = max(self.most_inside, len(self._work))

    def step(self) -> list[Outcome]:
        if self._work:
            time.sleep(0.001)  # an endless sample leaves the core to others
        outcomes = []
        for work in list(self._work):
            result = self._advance(work)
            if result is not None:
                self._work.remove(work)
                outcomes.append(Outcome(work.operation_id, result))
        return outcomes

    def preload(self) -> None: ...

    def cancel(self, operation_id: str) -> None:
        self._cancelled.add(operation_id)

    @property
    def busy(self) -> bool:
        return bool(self._work)

    def capacity(self) -> Capacity:
        return Capacity(
            running_sequences=len(self._work), waiting_sequences=0, max_sequences=8,
            cached_tokens=0, prompt_tokens=0, reused_prompt_tokens=0, sequences_set_back=0,
            loaded_models=(), adapters=len(self._versions), memory_bytes=0, memory_limit_bytes=1,
            device="cpu", dtype="float32", threads=1,
        )  # fmt: skip

    def close(self) -> None:
        self.closed = True

    def _advance(self, work: Work) -> Result | Failure | None:
        operation = work.operation
        match operation:
            case Sample():
                return self._draw(work, operation)
            case CreateModel(base_model="wrong"):
                return Failure("no such base model", Fault.USER)
            case CreateModel(base_model="slow") if not (self._data / "loaded").exists():
                self._load_slowly()
                return None
            case CreateModel():
                self._versions[operation.model_id] = 0
                return ModelReady(base_model=operation.base_model, lora=operation.lora)
            case CreateModelFrom():
                assert work.folder is not None
                assert (work.folder / "weights").is_file()
                self._versions[operation.model_id] = 0
                return ModelReady(base_model="tiny", lora=LoraSpec(rank=2))
            case ForwardBackward():
                lengths = [len(datum.model_input.tokens()) for datum in operation.data]
                logprobs = tuple(np.full(n, -1.0, np.float32) for n in lengths)
                return PassResult(logprobs=logprobs, metrics={"loss:sum": float(sum(lengths))})
            case DiscardGradients(reason=reason):
                return Failure(reason, Fault.USER)
            case OptimStep():
                self._versions[operation.model_id] += 1
                return StepResult(metrics={}, weights_version=self._versions[operation.model_id])
            case SaveWeights():
                return self._save(work.folder)
            case ResolveModel():
                self._served.append(served(operation.base_model))
                return Done()
            case _:
                return Done()

    def _draw(self, work: Work, sample: Sample) -> SampleResult | Failure | None:
        if work.operation_id in self._cancelled:
            return Failure("cancelled by the caller.", Fault.CANCELLED)
        drawn = self._drawn[work.operation_id] = self._drawn.get(work.operation_id, 0) + 1
        if sample.params.seed == ENDLESS or drawn < (sample.params.max_tokens or 1):
            return None
        tokens = np.arange(drawn, dtype=np.int32)
        one = SampledSequence(tokens, np.full(drawn, -1.0, np.float32), StopReason.LENGTH)
        return SampleResult(sequences=(one,) * sample.num_samples)

    def _load_slowly(self) -> None:
        """Hold the thread, as a real load does, until somebody makes the file."""
        self._on_progress(Doing("loading base model slow", 0.4))
        while not (self._data / "loaded").exists():
            time.sleep(0.01)
        self._on_progress(None)

    def _save(self, folder: Path | None) -> Saved:
        assert folder is not None
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"12345")
        return Saved(files={"weights": (5, "digest")}, weights_version=1)


def served(name: str) -> ServedModel:
    return ServedModel(
        name=name, architecture="llama", vocab_size=8, max_context=64, parameters=1,
        dtype="float32", device="cpu", tokenizer_folder="/nowhere",
    )  # fmt: skip
