"""How long does one training pass take beside transformers with peft?

The pass: forward and backward of `importance_sampling` over groups of answers to shared prompts,
LoRA of rank 16 on all linears of attention and MLP, float32, the embedded 135M model. Once by the
engine, called in this process; once by transformers with peft, right-padded batches, logits only
where answers are, as a user would write it by hand. Both get the same weights, tokens and
advantages, and their losses are compared before anything is timed.

The figure is the ratio of medians, peft over engine: above 1, the engine is quicker. The two take
turns within one run, so that a busy machine slows both; CPU seconds are steadier than wall
seconds where other programs run.

    python benchmarks/train_step.py [--groups 8] [--answers 6] [--repeats 5] [--threads N]

Prints a table, and a last line of JSON.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from mint.core.datum import Datum
from mint.core.ids import ModelId, OperationId
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput
from mint.core.operations import CreateModel, ForwardBackward, Operation, PassResult, Result
from mint.engine.protocol import Work
from mint.torch_engine.engine import TorchEngine
from mint.torch_engine.models.loader import load_module
from mint.torch_engine.models.registry import ModelRegistry
from mint.torch_engine.settings import EngineSettings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import machine

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
RANK = 16
SAMPLED_LOGPROB = -12.0
"""Of every token: about what the model gives a random one, so that ratios are near 1."""
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class Answer:
    """One datum: tokens of prompt and answer, and its advantage."""

    tokens: list[int]
    prompt_length: int
    advantage: float


def answers(groups: int, per_group: int, prompt: int, length: int) -> list[Answer]:
    """Groups of answers to shared prompts, of random tokens; advantages of a group cancel."""
    rng = random.Random(0)
    made = []
    for _ in range(groups):
        question = [rng.randrange(100, 40_000) for _ in range(prompt + rng.randint(-4, 4))]
        rewards = [rng.random() for _ in range(per_group)]
        for reward in rewards:
            tokens = question + [rng.randrange(100, 40_000) for _ in range(length)]
            made.append(Answer(tokens, len(question), reward - statistics.fmean(rewards)))
    return made


class Ours:
    """The engine behind its protocol, with one new adapter."""

    def __init__(self, data: Sequence[Answer], scratch: Path, threads: int | None) -> None:
        self._engine = TorchEngine(
            EngineSettings(models=(MODEL,), on_demand=False, threads=threads, scratch=scratch)
        )
        self._model = ModelId("bench:train:0")
        lora = LoraSpec(rank=RANK, seed=0, train_unembed=False)
        self._run(CreateModel(model_id=self._model, base_model=MODEL, lora=lora))
        self._data = tuple(datum(answer) for answer in data)

    def __call__(self) -> float:
        """One pass; its loss."""
        result = self._run(
            ForwardBackward(model_id=self._model, data=self._data, loss_fn="importance_sampling")
        )
        assert isinstance(result, PassResult)
        return result.metrics["loss:sum"]

    def _run(self, operation: Operation) -> Result:
        self._engine.start(Work(OperationId("bench"), operation))
        while True:
            for outcome in self._engine.step():
                assert not hasattr(outcome.result, "fault"), outcome.result
                return outcome.result  # type: ignore[return-value]


def datum(answer: Answer) -> Datum:
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


class Peft:
    """transformers and peft on padded micro-batches."""

    def __init__(self, data: Sequence[Answer], micro_batch: int) -> None:
        files = ModelRegistry((MODEL,), False).resolve(MODEL)
        base = load_module(files, dtype="float32", device="cpu", attention="sdpa")
        lora = LoraConfig(r=RANK, lora_alpha=32, target_modules=LINEARS)
        self._model = get_peft_model(base, lora)
        self._batches = [data[i : i + micro_batch] for i in range(0, len(data), micro_batch)]

    def __call__(self) -> float:
        """One pass; its loss. Gradients are cleared, which is not what takes time."""
        total = 0.0
        for batch in self._batches:
            loss = self._loss(batch)
            loss.backward()
            total += loss.item()
        self._model.zero_grad()
        return total

    def _loss(self, batch: Sequence[Answer]) -> Tensor:
        width = max(len(answer.tokens) for answer in batch)
        tokens = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros_like(tokens)
        advantages = torch.zeros(len(batch), width)
        for row, answer in enumerate(batch):
            n = len(answer.tokens)
            tokens[row, :n] = torch.tensor(answer.tokens)
            mask[row, :n] = 1
            advantages[row, answer.prompt_length : n] = answer.advantage
        first = min(answer.prompt_length for answer in batch)
        logits = self._model(
            input_ids=tokens, attention_mask=mask, use_cache=False, logits_to_keep=width - first + 1
        ).logits[:, :-1]
        logprobs = logits.log_softmax(-1).gather(-1, tokens[:, first:, None])[..., 0]
        return -(torch.exp(logprobs - SAMPLED_LOGPROB) * advantages[:, first:]).sum()


def timed(work: Callable[[], float]) -> tuple[float, float]:
    """Wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, default=8, help="prompts")
    parser.add_argument("--answers", type=int, default=6, help="per prompt")
    parser.add_argument("--prompt", type=int, default=24, help="tokens of a prompt, 4 more or less")
    parser.add_argument("--length", type=int, default=16, help="tokens of an answer")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--micro-batch", type=int, default=16, help="of peft, in datums")
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    before = machine()
    data = answers(args.groups, args.answers, args.prompt, args.length)

    with tempfile.TemporaryDirectory() as scratch:
        systems: dict[str, Callable[[], float]] = {
            "engine": Ours(data, Path(scratch), args.threads),
            "transformers + peft": Peft(data, args.micro_batch),
        }
        losses = {name: system() for name, system in systems.items()}  # warms both up, too
        ours, theirs = losses.values()
        assert abs(ours - theirs) <= 1e-3 * abs(theirs), f"not the same work: {losses}"
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
        for _ in range(args.repeats):
            for name, system in systems.items():
                times[name].append(timed(system))

    median = {
        name: tuple(statistics.median(column) for column in zip(*rows, strict=True))
        for name, rows in times.items()
    }
    print("| | wall s | CPU s |\n| --- | --- | --- |")
    for name, (wall, cpu) in median.items():
        print(f"| {name} | {wall:.2f} | {cpu:.2f} |")
    (our_wall, our_cpu), (their_wall, their_cpu) = median.values()
    print(f"| ratio | {their_wall / our_wall:.2f} | {their_cpu / our_cpu:.2f} |")
    result = {
        "benchmark": "train_step",
        "ratio_wall": round(their_wall / our_wall, 3),
        "ratio_cpu": round(their_cpu / our_cpu, 3),
        "seconds": {name: [round(value, 3) for value in both] for name, both in median.items()},
        "loss": {name: round(loss, 5) for name, loss in losses.items()},
        "threads": torch.get_num_threads(),
        "workload": vars(args),
        "machine": before,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
