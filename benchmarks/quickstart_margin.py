"""Does `make quickstart` learn, and by how much?

For each seed the quickstart runs as a person runs it. The margin is the mean avg_reward of the
last quarter of its steps less that of the first quarter; rewards lie in [0, 1]. The seed decides
questions, adapter and sampling, so seeds are independent runs of the same experiment.

    python benchmarks/quickstart_margin.py [--seeds 0 1 2]

Prints a table, and a last line of JSON.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.machine import machine  # noqa: E402

STEP = re.compile(r"^Step \d+: avg_reward=([\d.]+), exact_rate=([\d.]+),", re.MULTILINE)


def run(seed: int) -> dict[str, float | int]:
    """One quickstart; its figures."""
    started = time.monotonic()
    ran = subprocess.run(
        ["make", "--no-print-directory", "quickstart"],
        cwd=ROOT, env={**os.environ, "MINT_CUSTOM_REWARD_SEED": str(seed)},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    seconds = time.monotonic() - started
    steps = [(float(reward), float(exact)) for reward, exact in STEP.findall(ran.stdout)]
    quarter = max(1, len(steps) // 4)
    first, last = steps[:quarter], steps[-quarter:]
    first_reward, last_reward = (statistics.fmean(r for r, _ in part) for part in (first, last))
    return {
        "seed": seed,
        "steps": len(steps),
        "first_quarter": round(first_reward, 3),
        "last_quarter": round(last_reward, 3),
        "margin": round(last_reward - first_reward, 3),
        "exact_first_quarter": round(statistics.fmean(exact for _, exact in first), 3),
        "exact_last_quarter": round(statistics.fmean(exact for _, exact in last), 3),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    rows = [run(seed) for seed in parser.parse_args().seeds]
    print("| " + " | ".join(rows[0]) + " |")
    print("| " + " | ".join("---" for _ in rows[0]) + " |")
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")
    margins = [row["margin"] for row in rows]
    result = {
        "benchmark": "quickstart_margin",
        "margin_mean": round(statistics.fmean(margins), 3),
        "margin_lowest": min(margins),
        "runs": rows,
        "machine": machine(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
