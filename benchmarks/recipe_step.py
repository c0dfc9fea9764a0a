"""How much of an RL step is the loop's own, when recipe.rl.train runs it instead of a bare script?

The short step of rl_step.py (8 prompts x 6 answers, prompts of 20 to 28 tokens, 16 drawn), on one
`mint serve`, done twice in turns, step by step: by rl_step.py's client, which only asks, and by
`rl.train.main` as it comes, with tasks, environments, metrics, transcripts and its run folder. Model,
rank, prompts, rewards and numbers of tokens are the same; both keep nothing and evaluate nothing.

- share: what the loop's step takes more than the script's, over the loop's step. Of all CPU seconds
  (server and client) and of wall seconds. The engine's unsteadiness is in it, and was larger than
  what is sought: 3 and 11 % of CPU seconds in two runs beside other work.
- client share: the same more, but counted in the client's process alone, over the CPU seconds of the
  whole step. The server does the same work for both, so this is the steadier figure of the claim.
- outside: wall seconds of the loop's step by its own spans, without those that wait for the service.

    python -m benchmarks.recipe_step [--steps 8] [--save]

Prints a table, and a last line of JSON.
"""

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import chz
from tokenizers import Tokenizer

import mint
from benchmarks import harness, rl_step
from benchmarks.one_turn import AskedTogether
from benchmarks.rivals import model_folder
from benchmarks.served import Served, served
from benchmarks.workloads import SHORT, arithmetic_prompts, group_advantages
from mint import ModelInput
from mint.recipe.rl import train
from mint.recipe.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

LOOP, SCRIPT = "recipe.rl.train", "script"
SHAPE = SHORT
SERVICE_SPANS = ("time/policy_sample:max", "time/train", "time/create_sampler")
"""Of these the loop only waits; all answers are asked for at once, so the longest is their time."""


class Script(rl_step.Client):
    """rl_step.py's client, with an adapter at the places that recipes train."""

    def __post_init__(self) -> None:
        self._service = mint.ServiceClient(base_url=self.server.url, api_key=self.server.key)
        self._training = self._service.create_lora_training_client(
            self.server.model, rank=self.rank
        ).result()
        self._sampler = self._training.save_weights_and_get_sampling_client().result()


@chz.chz
class Turns(RLDatasetBuilder, RLDataset):
    """The script's prompts; each batch is given out once the script has had its turn."""

    tokenizer: Tokenizer
    steps: int
    take_turn: Callable[[int], None]

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return self, None

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        self.take_turn(index)
        prompts = arithmetic_prompts(lambda text: self.tokenizer.encode(text).ids, index, SHAPE)
        return [
            AskedTogether(ModelInput.from_ints(prompt), rewards)
            for prompt, rewards in zip(prompts, group_advantages(index, SHAPE), strict=True)
        ]

    def __len__(self) -> int:
        return self.steps


class Clock:
    """Seconds of each step: wall, CPU of all processes, and CPU of this one."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self.rows: list[dict[str, float]] = []
        self._began: dict[str, float] | None = None

    def start(self) -> None:
        self._began = self._now()

    def stop(self) -> None:
        if self._began is not None:
            now = self._now()
            self.rows.append({name: now[name] - self._began[name] for name in now})

    def _now(self) -> dict[str, float]:
        client = time.process_time()
        return {
            "wall": time.perf_counter(),
            "cpu": self._server.cpu_s() + client,
            "client": client,
        }


def measured(args: argparse.Namespace) -> tuple[dict[str, list[dict[str, float]]], list[Any]]:
    """Seconds of each step under both, and the loop's own rows of metrics."""
    folder = model_folder(args.model)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    with served(args.model, threads=args.threads) as server, tempfile.TemporaryDirectory() as logs:
        script = Script(server, args.rank, args.rate, tokenizer)
        loop_clock, script_clock = Clock(server), Clock(server)

        def take_turn(step: int) -> None:
            """Called as the loop's step begins: its last one is over, and it waits for us."""
            loop_clock.stop()
            script_clock.start()
            turn = threading.Thread(target=script.work, args=(step, SHAPE.as_json()))
            turn.start()  # a client's futures cannot be waited for in a loop's own thread
            turn.join()
            script_clock.stop()
            loop_clock.start()

        config = train.Config(
            learning_rate=args.rate,
            dataset_builder=Turns(tokenizer=tokenizer, steps=args.steps + 2, take_turn=take_turn),
            model_name=server.model,
            max_tokens=SHAPE.max_tokens,
            log_path=logs,
            lora_rank=args.rank,
            eval_every=0,
            save_every=0,
            service_client=mint.ServiceClient(base_url=server.url, api_key=server.key),
        )
        with redirect_stderr(StringIO()):
            asyncio.run(train.main(config))
        rows = [json.loads(line) for line in (Path(logs) / "metrics.jsonl").open()]
    counted = slice(1, args.steps + 1)  # the first warms up, the last needs no sampler
    return {LOOP: loop_clock.rows[1:], SCRIPT: script_clock.rows[counted]}, rows[counted]


def figures_of(
    seconds: Mapping[str, Sequence[Mapping[str, float]]], rows: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Medians of both, and the shares."""
    median = {
        name: {kind: statistics.median(one[kind] for one in some) for kind in some[0]}
        for name, some in seconds.items()
    }
    loop, script = median[LOOP], median[SCRIPT]
    outside = [
        row["time/total"] - turn["wall"] - sum(row.get(name, 0.0) for name in SERVICE_SPANS)
        for row, turn in zip(rows, seconds[SCRIPT], strict=True)
    ]
    return {
        "share_cpu": round(1 - script["cpu"] / loop["cpu"], 4),
        "share_wall": round(1 - script["wall"] / loop["wall"], 4),
        "client_share": round((loop["client"] - script["client"]) / loop["cpu"], 4),
        "outside_s": round(statistics.median(outside), 4),
        "outside_share": round(statistics.median(outside) / loop["wall"], 4),
        "median": {name: {k: round(v, 4) for k, v in one.items()} for name, one in median.items()},
    }


def arguments() -> argparse.Namespace:
    parser = harness.arguments(__doc__)
    parser.add_argument("--steps", type=int, default=8, help="that count")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-5, help="learning rate")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    told = harness.before(args)
    logging.getLogger("mint.recipe").setLevel(logging.ERROR)
    figures = figures_of(*measured(args))
    rows = [
        [name, one["wall"], one["cpu"], one["client"]] for name, one in figures["median"].items()
    ]
    print(harness.table(("step by", "s", "CPU s", "CPU s of the client"), rows))
    for name in ("share_cpu", "share_wall", "client_share", "outside_share"):
        print(f"{name}: {figures[name]:.1%}", file=sys.stderr)
    harness.report(harness.result_name("recipe_step", args), figures, told, save=args.save)


if __name__ == "__main__":
    main()
