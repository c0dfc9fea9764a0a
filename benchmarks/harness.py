"""What the benchmarks share: clocks, turns, medians, tables, the last line of JSON.

Needs neither torch nor a server.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import ROOT, machine

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Took:
    """Seconds of one piece of work."""

    wall_s: float
    cpu_s: float
    """Of all threads. Steadier than wall seconds where other programs run."""


def timed(work: Callable[[], object], cpu_s: Callable[[], float] = time.process_time) -> Took:
    """Do it, and tell how long it took.

    Args:
        cpu_s: CPU seconds used up to now, by whoever does the work.
    """
    wall, cpu = time.perf_counter(), cpu_s()
    work()
    return Took(time.perf_counter() - wall, cpu_s() - cpu)


def in_turns(systems: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[Took]]:
    """Time every system once a round, so that a busy spell of the machine hits all of them."""
    took: dict[str, list[Took]] = {name: [] for name in systems}
    for _ in range(repeats):
        for name, system in systems.items():
            took[name].append(timed(system))
    return took


def median(took: Sequence[Took]) -> Took:
    """Of wall and of CPU seconds, each by itself."""
    return Took(
        statistics.median(one.wall_s for one in took), statistics.median(one.cpu_s for one in took)
    )


def ratios(rival: Took, ours: Took) -> dict[str, float]:
    """How many times as long the rival takes."""
    return {
        "ratio_cpu": round(rival.cpu_s / ours.cpu_s, 3),
        "ratio_wall": round(rival.wall_s / ours.wall_s, 3),
    }


def seconds(took: Mapping[str, Took]) -> dict[str, dict[str, float]]:
    """For a result file."""
    return {
        name: {"wall": round(one.wall_s, 4), "cpu": round(one.cpu_s, 4)}
        for name, one in took.items()
    }


class Phases:
    """Wall and CPU seconds of the parts of a step that follow each other."""

    def __init__(self, cpu_s: Callable[[], float] = time.process_time) -> None:
        self._cpu_s = cpu_s
        self._wall, self._cpu = time.perf_counter(), cpu_s()
        self.row: dict[str, float] = {}
        """"NAME_s" and "NAME_cpu_s" of each part that has ended, and of all together as "step"."""

    def end(self, name: str) -> None:
        """The part that began when the last one ended is over."""
        wall, cpu = time.perf_counter(), self._cpu_s()
        for key, value in (("s", wall - self._wall), ("cpu_s", cpu - self._cpu)):
            self.row[f"{name}_{key}"] = value
            self.row[f"step_{key}"] = self.row.get(f"step_{key}", 0.0) + value
        self._wall, self._cpu = wall, cpu


def bare_arguments(doc: str | None) -> argparse.ArgumentParser:
    """A parser with what a benchmark without a model takes; `doc` is the module's, whose first line
    it shows."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/NAME.json")
    return parser


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """`bare_arguments`, and which model and how many threads."""
    parser = bare_arguments(doc)
    parser.add_argument("--model", default=MODEL, help="base model, NAME or NAME=FOLDER")
    parser.add_argument("--threads", type=int, default=1, help="of torch, in every system")
    return parser


PASS_SIZES = {"short": (8, 6, 24, 16), "long": (4, 8, 256, 128), "unshared": (48, 1, 24, 16)}
"""Of a training pass: groups, answers of each, tokens of a prompt, tokens of an answer."""

_PASS_ARGUMENTS = {
    "groups": "prompts of the pass",
    "answers": "per prompt",
    "prompt": "tokens of a prompt",
    "length": "tokens of an answer",
}


def pass_arguments(doc: str | None, *, unshared: bool = False) -> argparse.ArgumentParser:
    """`arguments`, and the size of a training pass.

    Args:
        unshared: whether --unshared is a size too.
    """
    parser = arguments(doc)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--long", action="store_true", help="4 groups of 8, 256 + 128 tokens")
    if unshared:
        sizes.add_argument(
            "--unshared", action="store_true", help="48 prompts with one answer each"
        )
    for name, what in _PASS_ARGUMENTS.items():
        parser.add_argument(f"--{name}", type=int, help=f"{what}, in place of the size's")
    return parser


def sized(args: argparse.Namespace) -> argparse.Namespace:
    """What was not given becomes the chosen size's."""
    chosen = (name for name in ("long", "unshared") if getattr(args, name, False))
    size = PASS_SIZES[next(chosen, "short")]
    for name, default in zip(_PASS_ARGUMENTS, size, strict=True):
        if getattr(args, name) is None:
            setattr(args, name, default)
    return args


def result_name(benchmark: str, args: argparse.Namespace, *variants: str) -> str:
    """Name of a run's result: the benchmark's, and what makes this run another claim.

    Args:
        variants: flags that do, such as "long" for --long. Threads and dtype do too.
    """
    parts = [benchmark, *(name for name in variants if getattr(args, name))]
    if getattr(args, "dtype", "float32") != "float32":
        parts.append(args.dtype)
    if args.threads != 1:
        parts.append(f"{args.threads}threads")
    return "_".join(parts)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown, for people; floats with three digits that count."""
    lines = [heads, ["---"] * len(heads), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def before(args: argparse.Namespace) -> dict[str, object]:
    """What a result says of its circumstances; taken before the work, for the load it tells."""
    ours = ("save", "trl", "child")  # say nothing of the work
    workload = {name: value for name, value in vars(args).items() if name not in ours}
    return {"workload": workload, "machine": machine()}


def report(
    name: str, figures: Mapping[str, object], told: Mapping[str, object], *, save: bool
) -> Path | None:
    """Print the last line, and write it to benchmarks/results/NAME.json if it is to be kept."""
    result = {"benchmark": name, **figures, **told}
    print(json.dumps(result))
    if not save:
        return None
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result) + "\n")
    return path
