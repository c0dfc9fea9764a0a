"""Run the benchmarks of `make bench` or `make bench-long`, and keep what they found.

The last line of each is its result, and goes to benchmarks/results/NAME.json, NAME being what it
calls itself. One that fails leaves its old result, is told at the end, and does not keep the
others from running.

    python -m benchmarks.run short|long [--only NAME ...]
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from benchmarks.harness import RESULTS
from benchmarks.machine import ROOT

SHORT = (
    "rl_step --steps 2",
    "train_step --repeats 2 --micro-batch 8 48",
    "train_step --unshared --repeats 1 --micro-batch 8 48",
    "sampling --repeats 2",
    "many_adapters --repeats 2",
    "latency_mix --repeats 1",
    "memory --micro-batch 16 8",
    "parity",
    "overhead --steps 2 --requests 25",
    "startup --threads 1",
    "recipe_budgets --repeats 3",
    "slow_rewards --steps 1",
)
LONG = (
    "rl_step --long --steps 2",
    "rl_step --threads 2",
    "train_step --long --repeats 2 --micro-batch 8",
    "train_step --dtype bfloat16 --repeats 3 --micro-batch 16",
    "sampling --long --repeats 2 --cells 1*1 2*4 8*6",
    "sampling --dtype bfloat16 --repeats 3",
    "latency_mix --long --repeats 2",
    "memory --long --micro-batch 8",
    "parity --dtype bfloat16",
    "real_text_bf16",
    "scaling --save",
    "quickstart_margin",
    "rl_schedules --repeats 2",
    "recipe_step",
    "math_rl --save",
    "demo_math",
)
SETS: Mapping[str, Sequence[str]] = {"short": SHORT, "long": LONG}


def run(words: str) -> bool:
    """One benchmark as a process; whether it ended well."""
    print(f"\n# {words}", flush=True)
    started = time.monotonic()
    command = [sys.executable, "-m", *f"benchmarks.{words}".split()]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    last = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line
    if process.wait():
        return False
    keep(last)
    print(f"({time.monotonic() - started:.0f} s)")
    return True


def keep(line: str) -> None:
    """Write a result to the file of its name."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{json.loads(line)['benchmark']}.json").write_text(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("which", choices=SETS)
    parser.add_argument("--only", nargs="+", help="benchmarks to run, by name")
    args = parser.parse_args()
    chosen = [words for words in SETS[args.which] if not args.only or words.split()[0] in args.only]
    failed = [words for words in chosen if not run(words)]
    if failed:
        sys.exit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
