"""How long does one RL step take, through HTTP with the real client, beside transformers with peft?

A step: draw a group of answers to each prompt, one pass of `importance_sampling` over all of them,
one optimizer step, and weights ready to sample from. Short is 8 prompts x 6 answers, prompts of 20
to 28 tokens, 16 tokens drawn; long (--long) is 4 x 8, 256 and 128. Nothing ends a sequence early,
so every system draws and trains the same number of tokens; prompts, advantages, temperature (1),
rank (16) and the adapter's places (all linears of attention and MLP, not the head) are the same.

MinT is a `mint serve` of its own with this process as its client: CPU seconds are those of client,
API and engine together. The rival is generate() and a padded pass in a process of its own
(rl_rival.py), with --trl VENV also GRPOTrainer from that environment (rl_trl.py). They take turns
step by step; whoever is not at work waits without computing.

- ratio: median CPU (and wall) seconds of the rival's step over ours. Above 1, we are quicker.
- roofline: the arithmetic the step needs (roofline.py counts it) at the speed of the quickest
  matrix product measured here in the same run, over what our step took: the share of an ideal
  machine's work that we reach, server and client included.
- logprob gap: |trainer - sampler| of the drawn tokens, in nats, for each system by itself.

    python -m benchmarks.rl_step [--long] [--steps 3] [--trl VENV] [--save]

Prints a table, and a last line of JSON.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

import mint
from benchmarks import harness, roofline
from benchmarks.children import Child
from benchmarks.rivals import model_folder
from benchmarks.served import Served, served
from benchmarks.workloads import LONG, SHORT, RLShape, arithmetic_prompts, group_advantages
from mint import types

PHASES = ("sample", "fb", "optim", "publish", "step")
OURS, PEFT, TRL = "mint", "transformers + peft", "trl"
Row = dict[str, float]


@dataclass
class Client:
    """A user's script, step by step."""

    server: Served
    rank: int
    rate: float
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        self._service = mint.ServiceClient(base_url=self.server.url, api_key=self.server.key)
        self._training = self._service.create_lora_training_client(
            self.server.model, rank=self.rank, train_unembed=False
        ).result()
        self._sampler = self._training.save_weights_and_get_sampling_client().result()

    def work(self, step: int, shape: dict[str, int]) -> Row:
        """One step; its phases, and what it drew and trained."""
        size = RLShape(**shape)
        prompts = arithmetic_prompts(lambda text: self.tokenizer.encode(text).ids, step, size)
        advantages = group_advantages(step, size)
        phases = harness.Phases(self.server.cpu_with_client_s)
        params = types.SamplingParams(max_tokens=size.max_tokens, temperature=1.0, stop=[])
        asked = [
            self._sampler.sample(types.ModelInput.from_ints(p), size.group, params) for p in prompts
        ]
        drawn = [future.result() for future in asked]
        phases.end("sample")
        data = [
            datum(prompt, sequence, advantage)
            for prompt, answer, group in zip(prompts, drawn, advantages, strict=True)
            for sequence, advantage in zip(answer.sequences, group, strict=True)
        ]
        passed = self._training.forward_backward(data, "importance_sampling").result()
        phases.end("fb")
        self._training.optim_step(types.AdamParams(learning_rate=self.rate)).result()
        phases.end("optim")
        self._sampler = self._training.save_weights_and_get_sampling_client().result()
        phases.end("publish")
        return {
            **phases.row,
            **gap(data, passed.loss_fn_outputs),
            "gen_tokens": sum(len(one.tokens) for answer in drawn for one in answer.sequences),
            "train_tokens": sum(one.model_input.length for one in data),
        }


def datum(prompt: Sequence[int], sequence: Any, advantage: float) -> types.Datum:
    """For `importance_sampling`: zeros on the prompt."""
    tokens, asked = [*prompt, *sequence.tokens], len(prompt) - 1
    inputs: Any = {
        "target_tokens": tokens[1:],
        "logprobs": [0.0] * asked + list(sequence.logprobs),
        "advantages": [0.0] * asked + [advantage] * len(sequence.tokens),
    }
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def gap(data: Sequence[types.Datum], outputs: Sequence[Any]) -> Row:
    """How far the pass's logprobs are from the sampled ones, in nats."""
    away = []
    for one, output in zip(data, outputs, strict=True):
        sampled = np.asarray(one.loss_fn_inputs["logprobs"].data)
        trained = np.asarray(output["logprobs"].data)
        away.append(np.abs(trained - sampled)[sampled != 0])
    gaps = np.concatenate(away)
    return {"logprob_gap_mean": float(gaps.mean()), "logprob_gap_max": float(gaps.max())}


def rival(module: str, python: str, args: argparse.Namespace, folder: Path) -> Child:
    told = ["--folder", folder, "--rank", args.rank, "--rate", args.rate, "--threads", args.threads]
    return Child([python, "-m", module, "--model", args.model, *map(str, told)])


def measured(
    systems: dict[str, Callable[..., Row]], shape: RLShape, steps: int
) -> dict[str, list[Row]]:
    """`steps` steps of each system, in turns, after one that does not count: code is loaded,
    weights are packed, and memory that the process never had is asked for, which in a virtual
    machine took longer than the step."""
    rows: dict[str, list[Row]] = {name: [] for name in systems}
    for step in range(steps + 1):
        for name, work in systems.items():
            row = work(step=step, shape=shape.as_json())
            print(f"step {step} of {name}: {row['step_cpu_s']:.1f} CPU s", file=sys.stderr)
            if step:
                rows[name].append(row)
    return rows


def medians(rows: Sequence[Row]) -> Row:
    """Of each key, and the rates made of them."""
    row = {key: round(statistics.median(one[key] for one in rows), 6) for key in rows[0]}
    for rate, tokens, phase in (
        ("gen_tok", "gen_tokens", "sample"),
        ("train_tok", "train_tokens", "fb"),
    ):
        for unit in ("s", "cpu_s"):
            row[f"{rate}_per_{unit}"] = round(row[tokens] / max(row[f"{phase}_{unit}"], 1e-3), 1)
    return row


def arguments() -> argparse.Namespace:
    parser = harness.arguments(__doc__)
    parser.add_argument("--long", action="store_true", help="4 x 8, prompts of 256, 128 drawn")
    parser.add_argument("--steps", type=int, default=3, help="that count")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-5, help="learning rate")
    parser.add_argument("--trl", metavar="VENV", help="environment that has trl, torch and peft")
    for name in SHORT.as_json():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="in place of the size's")
    return parser.parse_args()


def shape_of(args: argparse.Namespace) -> RLShape:
    size = (LONG if args.long else SHORT).as_json()
    given = {name: value for name in size if (value := getattr(args, name)) is not None}
    return RLShape(**{**size, **given})


def main() -> None:
    args = arguments()
    shape, told, folder = shape_of(args), harness.before(args), model_folder(args.model)
    torch.set_num_threads(args.threads)
    peaks = [roofline.measure_peak()]
    with ExitStack() as stack:
        server = stack.enter_context(served(args.model, threads=args.threads))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        systems: dict[str, Callable[..., Row]] = {
            OURS: Client(server, args.rank, args.rate, tokenizer).work,
            PEFT: stack.enter_context(
                rival("benchmarks.rl_rival", sys.executable, args, folder)
            ).work,
        }
        if args.trl:
            python = str(Path(args.trl) / "bin" / "python")
            systems[TRL] = stack.enter_context(
                rival("benchmarks.rl_trl", python, args, folder)
            ).work
        rows = measured(systems, shape, args.steps)
    peaks.append(roofline.measure_peak())  # others may have slowed the first one down
    peak = max(peaks, key=lambda one: one.per_cpu_s)
    show(args, shape, {name: medians(of) for name, of in rows.items()}, folder, peak, told)


def show(
    args: argparse.Namespace,
    shape: RLShape,
    median: dict[str, Row],
    folder: Path,
    peak: roofline.Peak,
    told: dict[str, object],
) -> None:
    heads = [f"{phase} {unit}" for phase in PHASES for unit in ("s", "CPU s")]
    rows = [
        [name, *(row.get(f"{phase}_{unit}", 0.0) for phase in PHASES for unit in ("s", "cpu_s"))]
        for name, row in median.items()
    ]
    print(harness.table(["", *heads], rows))
    step = {name: harness.Took(row["step_s"], row["step_cpu_s"]) for name, row in median.items()}
    sizes = roofline.Sizes.read(folder, args.rank)
    flops = roofline.rl_step_flops(sizes, shape.prompt_lengths(), shape.group, shape.max_tokens)
    figures = {
        **harness.ratios(step[PEFT], step[OURS]),
        **({"trl": harness.ratios(step[TRL], step[OURS])} if TRL in step else {}),
        "roofline": {
            "gflop": round(flops / 1e9, 1),
            "peak_gflops": round(peak.per_cpu_s / 1e9, 1),
            "ideal_cpu_s": round(flops / peak.per_cpu_s, 3),
            "fraction_cpu": round(flops / peak.per_cpu_s / step[OURS].cpu_s, 4),
            "fraction_wall": round(flops / peak.per_wall_s / step[OURS].wall_s, 4),
        },
        "median": median,
    }
    print(f"\nratio {figures['ratio_cpu']} CPU, {figures['ratio_wall']} wall")
    print(f"roofline {figures['roofline']}")
    harness.report(
        harness.result_name("rl_step", args, "long", "trl"), figures, told, save=args.save
    )


if __name__ == "__main__":
    main()
