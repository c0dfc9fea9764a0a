"""How much memory does a training pass take, beside transformers with peft?

Each system is measured in a process of its own: model and adapter are loaded, one small pass has
run (two datums; code, packed weights and gradients are there), the kernel's high-water mark of
resident memory is set back, the pass of train_step.py runs once. The figure is how far the mark
then lies above what was resident before: activations, logits, everything that the pass needs beyond
the model. peft's micro-batches are those of --micro-batch, each measured by itself; the first of
them is the rival, 16 as in rl_rival.py.

Short: 8 groups of 6 answers of 16 tokens to prompts of 20 to 28; --long 4 groups of 8, 128 to 256.

- ratio: growth of the engine over that of peft. Below 1, the engine needs less. ratio_least is
  against the micro-batch that needs least, and is slower.
- resident: what each holds before the pass, model included.

    python -m benchmarks.memory [--long] [--micro-batch 16 8 48] [--save]

Linux only. Prints a table, and a last line of JSON.
"""

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import harness, ours, rivals
from benchmarks.children import Child, Turns
from benchmarks.ours import Ours
from benchmarks.workloads import random_answers

MIB = 1024
"""kB, as /proc counts."""
ENGINE = "engine"


def status(key: str) -> float:
    """VmRSS or VmHWM of this process, MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / MIB
    raise RuntimeError(f"/proc/self/status has no {key}; this benchmark needs Linux.")


def growth(work: Callable[[], object]) -> dict[str, float]:
    """Resident MiB before `work`, and how far the high-water mark rose above it."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS
    before = status("VmRSS")
    work()
    return {"resident_mib": round(before, 1), "growth_mib": round(status("VmHWM") - before, 1)}


def child(args: argparse.Namespace) -> None:
    """One system in this process, once it is told to work."""
    turns = Turns()
    torch.set_num_threads(args.threads)
    vocabulary = rivals.vocabulary(args.model)
    answers = random_answers(args.groups, args.answers, args.prompt, args.length, vocabulary)
    with tempfile.TemporaryDirectory() as scratch:
        if args.child == ENGINE:
            full, small = _engine(args, answers, Path(scratch))
        else:
            full, small = _peft(args, answers)
        small()
        turns.say({"ready": True})
        turns.serve(lambda: growth(full))


def _engine(
    args: argparse.Namespace, answers: list, scratch: Path
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    engine = Ours(args.model, scratch, threads=args.threads, dtype=args.dtype)
    model_id = engine.create(args.rank)
    data = [ours.datum(answer) for answer in answers]
    return (
        lambda: engine.run(ours.policy_pass(model_id, data)),
        lambda: engine.run(ours.policy_pass(model_id, data[:2])),
    )


def _peft(args: argparse.Namespace, answers: list) -> tuple[Callable[[], Any], Callable[[], Any]]:
    model, rows = (
        rivals.load_peft(args.model, rank=args.rank, dtype=args.dtype),
        rivals.rows(answers),
    )
    at_once = int(args.child)
    return (
        lambda: rivals.policy_pass(model, rows, at_once),
        lambda: rivals.policy_pass(model, rows[:2], 2),
    )


def arguments() -> argparse.Namespace:
    parser = harness.pass_arguments(__doc__)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--micro-batch", type=int, nargs="+", default=[16, 8, 48], help="of peft")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return harness.sized(parser.parse_args())


def main() -> None:
    args = arguments()
    if args.child:
        child(args)
        return
    told = harness.before(args)
    found: dict[str, dict[str, float]] = {}
    for system in (ENGINE, *map(str, args.micro_batch)):
        command = [sys.executable, "-m", "benchmarks.memory", *sys.argv[1:], "--child", system]
        with Child(command) as process:
            found[system] = process.work()
    rows = [
        (name if name == ENGINE else f"peft, {name} at once", *one.values())
        for name, one in found.items()
    ]
    print(harness.table(("", "resident MiB", "growth MiB"), rows))
    engine = found.pop(ENGINE)
    grown = [one["growth_mib"] for one in found.values()]
    figures = {
        "ratio": round(engine["growth_mib"] / grown[0], 3),
        "ratio_least": round(engine["growth_mib"] / min(grown), 3),
        "engine": engine,
        "peft": found,
    }
    print(f"\nratio {figures['ratio']}, against the smallest {figures['ratio_least']}")
    name = harness.result_name("memory", args, "long")
    harness.report(name, figures, told, save=args.save)


if __name__ == "__main__":
    main()
