"""How much of a training step's time is not the engine's computing?

Everything is real: `mint serve` with its two processes (API and engine), and the client in this
one. The engine process counts the seconds it spends in `engine.step()`
(`mint_engine_busy_seconds_total`); what a phase takes beyond them is the service's: the client's
and the server's Python, HTTP, encoding, the store, the hops between processes.

1. The short RL step on the embedded 135M model: 8 prompts of about 24 tokens, 6 samples each of up
   to 16 tokens; forward_backward (importance_sampling) on the 48 datums; optim_step;
   save_weights_and_get_sampling_client. Each call waits for the one before, which is the worst
   case: whoever sends a step's calls together hides part of it.
2. Single requests on a tiny model of a few thousand parameters, where the service dominates.
3. Growth, on the tiny model: 1 to 64 sampling requests at once, and datums of 64 to 2048 tokens.
   What a request costs beyond computing has to stay flat in the first, and to grow no faster than
   its bytes in the second.

CPU seconds per process are the steadier figures where other programs run.

    python benchmarks/overhead.py [--steps 3] [--requests 50] [--threads N] [--part step|requests|growth]

Prints tables, and a last line of JSON.
"""

import argparse
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import mint
from benchmarks.machine import machine
from mint.testing import LocalService, local_service, tiny_model

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
TINY = "tiny-long"
CONTEXT = 4096
PROCESSES = ("client", "api", "engine")
REPORTED_S = 0.05
"""The engine's report follows the last result by less than this."""
_BUSY = re.compile(r"^mint_engine_busy_seconds_total (\S+)$", re.MULTILINE)


@dataclass
class Cost:
    """What one phase took, in seconds."""

    wall: float = 0.0
    busy: float = 0.0
    """Of the wall, inside engine.step()."""
    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PROCESSES, 0.0))

    @property
    def rest(self) -> float:
        return self.wall - self.busy

    def __add__(self, other: "Cost") -> "Cost":
        cpu = {name: self.cpu[name] + other.cpu[name] for name in PROCESSES}
        return Cost(self.wall + other.wall, self.busy + other.busy, cpu)

    def each(self, count: int) -> "Cost":
        cpu = {name: seconds / count for name, seconds in self.cpu.items()}
        return Cost(self.wall / count, self.busy / count, cpu)

    def plain(self) -> dict[str, Any]:
        cpu_ms = {name: round(1e3 * seconds, 2) for name, seconds in self.cpu.items()}
        return {
            "wall_ms": round(1e3 * self.wall, 2),
            "busy_ms": round(1e3 * self.busy, 2),
            "rest_ms": round(1e3 * self.rest, 2),
            "cpu_ms": cpu_ms,
        }


def median(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.busy for cost in costs),
        {name: statistics.median(cost.cpu[name] for cost in costs) for name in PROCESSES},
    )


class Meter:
    """Reads the three processes of a service around a phase."""

    def __init__(self, service: LocalService) -> None:
        self._http = httpx.Client(base_url=service.url, trust_env=False)
        pids = {
            "api": json.loads((service.data / "server.json").read_text())["pid"],
            "engine": json.loads((service.data / "engine.json").read_text())["pid"],
        }
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}

    @contextmanager
    def phase(self) -> Iterator[Cost]:
        """Fills in the cost of the block. Reading the figures is not part of it."""
        cost, busy = Cost(), self._busy()
        cpu, wall = self._cpu(), time.perf_counter()
        yield cost
        cost.wall = time.perf_counter() - wall
        cost.cpu = {name: seconds - cpu[name] for name, seconds in self._cpu().items()}
        cost.busy = self._busy() - busy

    def _cpu(self) -> dict[str, float]:
        cpu = {"client": time.process_time()}
        for name, process in self._processes.items():
            times = process.cpu_times()
            cpu[name] = times.user + times.system
        return cpu

    def _busy(self) -> float:
        time.sleep(REPORTED_S)
        found = _BUSY.search(self._http.get("/metrics").text)
        return float(found[1]) if found else 0.0


# ------------------------------------------------------------- the RL step


def prompts(count: int, length: int, vocab: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [
        [rng.randrange(100, vocab) for _ in range(length + rng.randint(-4, 4))]
        for _ in range(count)
    ]


def datums(questions: list[list[int]], results: list[Any]) -> list[mint.Datum]:
    """One datum per sampled sequence; advantages of a group cancel."""
    made = []
    for question, result in zip(questions, results, strict=True):
        middle = (len(result.sequences) - 1) / 2
        for i, sequence in enumerate(result.sequences):
            pad, answered = len(question) - 1, len(sequence.tokens)
            tokens = question + list(sequence.tokens)
            made.append(
                datum(
                    tokens,
                    logprobs=[0.0] * pad + list(sequence.logprobs),
                    advantages=[0.0] * pad + [i - middle] * answered,
                )
            )
    return made


def datum(tokens: list[int], *, logprobs: list[float], advantages: list[float]) -> mint.Datum:
    def tensor(data: list[Any], dtype: Any) -> mint.TensorData:
        return mint.TensorData(data=data, dtype=dtype, shape=[len(data)])

    return mint.Datum(
        model_input=mint.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tensor(tokens[1:], "int64"),
            "logprobs": tensor(logprobs, "float32"),
            "advantages": tensor(advantages, "float32"),
        },
    )


def rl_steps(service: LocalService, meter: Meter, steps: int) -> dict[str, Cost]:
    """Median cost of each phase of the short step, the first step left out."""
    training = _new_model(service, MODEL, 16)
    sampler = training.save_weights_and_get_sampling_client().result()
    params = mint.SamplingParams(max_tokens=16, temperature=0.8, stop=[])
    adam = mint.AdamParams(learning_rate=2e-5)
    found: dict[str, list[Cost]] = {}
    for step in range(steps + 1):
        questions = prompts(8, 24, 40_000, seed=step)
        costs: dict[str, Cost] = {}
        with meter.phase() as costs["sample"]:
            futures = [
                sampler.sample(mint.ModelInput.from_ints(question), 6, params)
                for question in questions
            ]
            results = [future.result() for future in futures]
        with meter.phase() as costs["build datums"]:
            data = datums(questions, results)
        with meter.phase() as costs["forward_backward"]:
            training.forward_backward(data, "importance_sampling").result()
        with meter.phase() as costs["optim_step"]:
            training.optim_step(adam).result()
        with meter.phase() as costs["save weights, new client"]:
            sampler = training.save_weights_and_get_sampling_client().result()
        costs["step"] = sum(costs.values(), Cost())
        for name, cost in costs.items() if step else ():
            found.setdefault(name, []).append(cost)
    return {name: median(costs) for name, costs in found.items()}


# --------------------------------------------------------- single requests


def single_requests(service: LocalService, meter: Meter, requests: int) -> dict[str, Cost]:
    """Median wall of one request, and the mean of all else, per kind."""
    training = _new_model(service, TINY, 8)
    sampler = training.save_weights_and_get_sampling_client().result()
    prompt, one = mint.ModelInput.from_ints(list(range(24))), _datum_of(40)

    def forward_backward() -> None:
        training.forward_backward([one], "importance_sampling").result()

    def nothing() -> None: ...

    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "optim_step": (forward_backward, lambda: training.optim_step(mint.AdamParams()).result()),
        "forward_backward, 1 datum": (nothing, forward_backward),
        "sample, 1 token": (
            nothing,
            lambda: sampler.sample(prompt, 1, mint.SamplingParams(max_tokens=1)).result(),
        ),
        "save weights, new client": (
            nothing,
            lambda: training.save_weights_and_get_sampling_client().result(),
        ),
    }
    found = {}
    for name, (prepare, call) in calls.items():
        costs = []
        for _ in range(requests + 5):
            prepare()
            with meter.phase() as cost:
                call()
            costs.append(cost)
        found[name] = sum(costs[5:], Cost()).each(requests)
        found[name].wall = statistics.median(cost.wall for cost in costs[5:])
        found[name].busy = statistics.median(cost.busy for cost in costs[5:])
    return found


def _datum_of(length: int) -> mint.Datum:
    tokens = [i % 250 for i in range(length + 1)]
    return datum(tokens, logprobs=[-1.0] * length, advantages=[0.5] * length)


# ----------------------------------------------------------------- growth


def growth(service: LocalService, meter: Meter, requests: int) -> dict[str, Cost]:
    """Cost per request of sampling at several widths, and of a datum at several lengths."""
    training = _new_model(service, TINY, 8)
    sampler = training.save_weights_and_get_sampling_client().result()
    prompt, params = mint.ModelInput.from_ints([1, 2, 3]), mint.SamplingParams(max_tokens=1)
    found = {}
    for width in (1, 4, 16, 64):

        def ask(width: int = width) -> None:
            for future in [sampler.sample(prompt, 1, params) for _ in range(width)]:
                future.result()

        ask()  # opens the client's connections
        rounds = max(1, requests // width)
        with meter.phase() as cost:
            for _ in range(rounds):
                ask()
        found[f"sample, {width} at once"] = cost.each(rounds * width)
    for length in (64, 256, 1024, 2048):
        data = [_datum_of(length)]
        training.forward_backward(data, "importance_sampling").result()
        repeats = max(1, requests // 4)
        with meter.phase() as cost:
            for _ in range(repeats):
                training.forward_backward(data, "importance_sampling").result()
        found[f"forward_backward, {length} tokens"] = cost.each(repeats)
    return found


# ------------------------------------------------------------------ report


def _new_model(service: LocalService, base: str, rank: int) -> mint.TrainingClient:
    client = mint.ServiceClient(base_url=service.url, api_key=service.key)
    return client.create_lora_training_client(base, rank=rank).result()


def table(title: str, costs: dict[str, Cost]) -> None:
    print(f"\n{title}\n")
    print("| | wall ms | engine ms | rest ms | rest of wall | " +
          " | ".join(f"CPU ms {name}" for name in PROCESSES) + " |")  # fmt: skip
    print("| --- |" + " --- |" * (4 + len(PROCESSES)))
    for name, cost in costs.items():
        cpu = " | ".join(f"{1e3 * cost.cpu[process]:.1f}" for process in PROCESSES)
        share = f"{cost.rest / cost.wall:.1%}"
        print(f"| {name} | {1e3 * cost.wall:.1f} | {1e3 * cost.busy:.1f} | {1e3 * cost.rest:.1f} "
              f"| {share} | {cpu} |")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=3, help="measured RL steps")
    parser.add_argument("--requests", type=int, default=50, help="of each kind; growth takes twice")
    parser.add_argument("--threads", type=int, default=1, help="of the engine")
    parser.add_argument("--part", choices=("step", "requests", "growth"), action="append")
    args = parser.parse_args()
    parts = args.part or ["step", "requests", "growth"]
    before = machine()
    measured: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        tiny = tiny_model(Path(scratch), TINY, max_context=CONTEXT)
        models = [tiny.spec, *([MODEL] if "step" in parts else [])]
        options = [part for model in models for part in ("--model", model)]
        with local_service(options=(*options, "--threads", str(args.threads))) as service:
            os.environ.update(service.environment())
            meter = Meter(service)
            if "step" in parts:
                measured["step"] = rl_steps(service, meter, args.steps)
                table("The short RL step", measured["step"])
            if "requests" in parts:
                measured["requests"] = single_requests(service, meter, args.requests)
                table("One request at a time, tiny model", measured["requests"])
            if "growth" in parts:
                measured["growth"] = growth(service, meter, 2 * args.requests)
                table("Per request, tiny model", measured["growth"])
    step = measured.get("step", {}).get("step")
    result = {
        "benchmark": "overhead",
        "share_not_engine": round(step.rest / step.wall, 4) if step else None,
        **{
            part: {k: cost.plain() for k, cost in costs.items()} for part, costs in measured.items()
        },
        "workload": vars(args),
        "machine": before,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
