"""Does demos/rl/verifiable_math.py learn, and in what time?

The demo with its defaults, once per seed, on the embedded model and a server that starts by itself.
The seed decides the questions; adapter and sampling are drawn anew each time, so seeds are
independent runs of one experiment. What counts is the accuracy that the demo prints, the share of
right answers at temperature 1 to questions drawn for that step: its mean over the first quarter of
the steps, and over the last.

    python -m benchmarks.demo_math [--seeds 0 1 2] [--save]

Prints the demo's lines, a table, and a last line of JSON.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from demos.rl.verifiable_math import DEFAULTS, VerifiableMath

from benchmarks import harness
from benchmarks.served import with_own_server
from mint.rl_core import RLConfig, run_grpo


class Recorded(VerifiableMath):
    """The demo, with a memory for what it prints."""

    def __init__(self, questions: int, seed: int) -> None:
        super().__init__(questions, seed)
        self.accuracies: list[float] = []

    def evaluate(self, step: int, rewards: Sequence[float], num_datums: int) -> None:
        super().evaluate(step, rewards, num_datums)
        right = sum(reward > 0 for reward in rewards)
        self.accuracies.append(round(right / len(rewards), 4))


def learned(seed: int, config: RLConfig) -> dict[str, Any]:
    """One run, and what it came to."""
    adapter = Recorded(config.batch, seed)
    began = time.monotonic()
    run_grpo(adapter, config)
    quarter = max(1, config.steps // 4)
    return {
        "first_quarter": round(statistics.fmean(adapter.accuracies[:quarter]), 3),
        "last_quarter": round(statistics.fmean(adapter.accuracies[-quarter:]), 3),
        "seconds": round(time.monotonic() - began),
        "accuracies": adapter.accuracies,
    }


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    told = harness.before(args)
    config = RLConfig(**{**DEFAULTS, "model": args.model})
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        environment = with_own_server(Path(scratch) / "home", args.threads)
        os.environ.clear()
        os.environ.update(environment)
        for seed in args.seeds:
            folder = str(Path(scratch) / f"run-{seed}")
            found[str(seed)] = learned(seed, replace(config, log_path=folder))
    heads = ["seed", "first quarter", "last quarter", "s"]
    rows = [
        [seed, one["first_quarter"], one["last_quarter"], one["seconds"]]
        for seed, one in found.items()
    ]
    print(harness.table(heads, rows))
    harness.report("demo_math", {"seeds": found}, told, save=args.save)


if __name__ == "__main__":
    main()
