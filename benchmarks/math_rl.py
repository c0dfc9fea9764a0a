"""Does reinforcement learning through `mint.recipe` teach a model, and in what time?

`recipes/math_rl` with its defaults, once per seed: 30 steps of 8 sums with 8 answers each, the
embedded model, a server that starts by itself. The seed decides the questions; adapter and sampling
are drawn anew each time, so seeds are independent runs of one experiment. What counts is the share
of right answers to 64 questions that are not trained on, one answer each at temperature 1, before
the first step and after the last.

    python -m benchmarks.math_rl [--seeds 0 1 2] [--save]

Prints a table, and a last line of JSON; --save also draws docs/assets/math_rl.svg.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import harness, plot
from benchmarks.machine import ROOT
from benchmarks.served import with_own_server

PICTURE = ROOT / "docs" / "assets" / "math_rl.svg"
RIGHT, REWARD = "test/env/all/correct", "env/all/reward/total"


def run(seed: int, folder: Path, home: Path, threads: int) -> float:
    """One run into a folder; the seconds it took, with the server's start if it has not started."""
    began = time.monotonic()
    command = ["-m", "recipes.math_rl.train", f"log_path={folder}", f"seed={seed}"]
    environment = with_own_server(home, threads)
    subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=True)
    return time.monotonic() - began


def learned(folder: Path) -> dict[str, Any]:
    """What the rows of a run say."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    tested = {str(row["step"]): row[RIGHT] for row in rows if RIGHT in row}
    # the row of the last evaluation repeats the rewards of the last step
    rewards = [row[REWARD] for row in rows if "progress/batch" in row]
    return {"right": tested, "rewards": [round(reward, 4) for reward in rewards]}


def picture(found: Mapping[str, Any]) -> str:
    """The rewards of every seed, as the docs show them."""
    series = {f"seed {seed}": one["rewards"] for seed, one in found.items()}
    return plot.curves("Mean reward of the answers", "step", series)


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    told = harness.before(args)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in args.seeds:
            folder = Path(scratch) / f"run-{seed}"
            seconds = run(seed, folder, Path(scratch) / "home", args.threads)
            found[str(seed)] = {**learned(folder), "seconds": round(seconds)}
    rows = [[seed, *one["right"].values(), one["seconds"]] for seed, one in found.items()]
    steps = next(iter(found.values()))["right"]
    print(harness.table(["seed", *(f"right at step {step}" for step in steps), "s"], rows))
    if args.save:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(picture(found))
    harness.report("math_rl", {"seeds": found}, told, save=args.save)


if __name__ == "__main__":
    main()
