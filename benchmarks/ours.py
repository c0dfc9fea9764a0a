"""The engine in this process, driven through its protocol alone."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.workloads import SAMPLED_LOGPROB, Answer
from mint.core.datum import Datum
from mint.core.ids import ModelId, OperationId, SamplerId
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput
from mint.core.operations import (
    CreateModel,
    Failure,
    ForwardBackward,
    LoadWeights,
    Operation,
    OptimStep,
    PassResult,
    PinSampler,
    Result,
    Sample,
    SaveWeights,
)
from mint.core.optim import AdamParams
from mint.core.sampling import SamplingParams, Stop
from mint.engine.protocol import Work
from mint.torch_engine.engine import TorchEngine
from mint.torch_engine.settings import EngineSettings

Gradient = dict[str, Tensor]
"""By the names that peft gives the weights of an adapter."""

_GAIN = 1e4
_EPS = 1e12


class Ours:
    """One engine with one base model."""

    def __init__(self, model: str, scratch: Path, *, threads: int, dtype: str = "float32") -> None:
        """
        Args:
            model: NAME or NAME=FOLDER.
            scratch: an empty folder, for checkpoints too.
        """
        self.base_model = model.partition("=")[0]
        self.engine = TorchEngine(
            EngineSettings(
                models=(model,), threads=threads, dtype=dtype, scratch=scratch / "engine"
            )
        )
        self._scratch = scratch
        self._count = itertools.count()

    def run(self, *operations: Operation, folder: Path | None = None) -> list[Result]:
        """Start all of them, and return their results, in that order.

        Raises:
            RuntimeError: one failed.
        """
        ids = [self.start(operation, folder) for operation in operations]
        results: dict[OperationId, Result] = {}
        while len(results) < len(ids):
            results.update(self.step())
        return [results[one] for one in ids]

    def start(self, operation: Operation, folder: Path | None = None) -> OperationId:
        operation_id = OperationId(f"bench-{next(self._count)}")
        self.engine.start(Work(operation_id, operation, folder=folder))
        return operation_id

    def step(self) -> dict[OperationId, Result]:
        """One slice of the engine's; what ended with it."""
        ended: dict[OperationId, Result] = {}
        for outcome in self.engine.step():
            if isinstance(outcome.result, Failure):
                raise RuntimeError(f"{outcome.operation_id} failed: {outcome.result.message}")
            ended[outcome.operation_id] = outcome.result
        return ended

    def create(self, rank: int) -> ModelId:
        """A new adapter on the linears of attention and MLP, the set that peft calls all-linear."""
        number = next(self._count)
        model_id = ModelId(f"bench:train:{number}")
        lora = LoraSpec(rank=rank, seed=number, train_unembed=False)
        self.run(CreateModel(model_id=model_id, base_model=self.base_model, lora=lora))
        return model_id

    def pin(self, model_id: ModelId) -> SamplerId:
        """The model's present weights, for sampling."""
        sampler = SamplerId(f"bench:sample:{next(self._count)}")
        self.run(PinSampler(model_id=model_id, sampler_id=sampler))
        return sampler

    def sample(
        self, sampler: SamplerId, prompt: Sequence[int], num_samples: int, tokens: int
    ) -> Sample:
        """An operation that draws exactly so many tokens."""
        return Sample(
            sampler_id=sampler,
            base_model=self.base_model,
            weights=sampler,
            prompt=ModelInput.from_ints(prompt),
            num_samples=num_samples,
            params=SamplingParams(max_tokens=tokens, stop=Stop(eos=False)),
        )

    def learn(self, model_id: ModelId, data: Sequence[Datum], rate: float = 1e-3) -> None:
        """One step on `data`: a new adapter's B is 0, which would leave A without a gradient."""
        self.run(
            policy_pass(model_id, data),
            OptimStep(model_id=model_id, params=AdamParams(learning_rate=rate)),
        )

    def save(self, model_id: ModelId) -> Path:
        """The adapter as a folder that peft can load."""
        folder = self._scratch / f"checkpoint-{next(self._count)}"
        path = f"tinker://{model_id}/weights/{folder.name}"
        self.run(SaveWeights(model_id=model_id, path=path), folder=folder)
        return folder

    def load(self, model_id: ModelId, folder: Path) -> None:
        """A saved adapter's weights; the optimizer begins anew."""
        path = f"tinker://{model_id}/weights/{folder.name}"
        self.run(LoadWeights(model_id=model_id, path=path, with_optimizer=False), folder=folder)

    def gradient(self, passed: ForwardBackward) -> Gradient:
        """The gradient of one pass, read off an optimizer step, since no operation returns it.

        Adam without memory (both betas 0) moves a weight by lr * g / (|g| + eps). With eps far
        above every |g| that is (lr / eps) * g, and with lr / eps = 10^4 the step is so much larger
        than the weight that float32 keeps seven digits of g. The weights are put back afterwards.
        """
        model_id = passed.model_id
        start = self.save(model_id)
        far = AdamParams(learning_rate=_GAIN * _EPS, beta1=0.0, beta2=0.0, eps=_EPS)
        self.run(passed, OptimStep(model_id=model_id, params=far))
        old, new = adapter(start), adapter(self.save(model_id))
        self.load(model_id, start)
        return {name: (old[name] - new[name]) / _GAIN for name in old}


def adapter(folder: Path) -> dict[str, Tensor]:
    """A saved adapter's weights by peft's names, float64."""
    return {
        name: weight.double()
        for name, weight in load_file(folder / "adapter_model.safetensors").items()
    }


def relative_error(one: Gradient, truth: Gradient) -> float:
    """L2 of the difference over all weights, in units of the L2 of `truth`."""
    if one.keys() != truth.keys():
        raise ValueError(f"not the same weights: {sorted(one.keys() ^ truth.keys())[:4]}")
    off = torch.cat([(one[name] - truth[name]).flatten() for name in truth])
    return float(off.norm() / _flat(truth).norm())


def cosine(one: Gradient, truth: Gradient) -> float:
    """Of the angle between two gradients, over all weights."""
    a, b = _flat(one, truth), _flat(truth)
    return float(a @ b / (a.norm() * b.norm()))


def _flat(gradient: Gradient, order: Gradient | None = None) -> Tensor:
    return torch.cat([gradient[name].flatten() for name in order or gradient])


def policy_pass(model_id: ModelId, data: Sequence[Datum]) -> ForwardBackward:
    """`importance_sampling` over `data`."""
    return ForwardBackward(model_id=model_id, data=tuple(data), loss_fn="importance_sampling")


def loss_of(result: Result) -> float:
    assert isinstance(result, PassResult)
    return result.metrics["loss:sum"]


def datum(answer: Answer) -> Datum:
    """For `importance_sampling`; prompt tokens have advantage 0."""
    targets = np.asarray(answer.tokens[1:], dtype=np.int64)
    answered = np.arange(len(targets)) >= answer.prompt_length - 1
    return Datum(
        ModelInput.from_ints(answer.tokens[:-1]),
        {
            "target_tokens": targets,
            "logprobs": np.where(answered, SAMPLED_LOGPROB, 0.0).astype(np.float32),
            "advantages": np.where(answered, answer.advantage, 0.0).astype(np.float32),
        },
    )
