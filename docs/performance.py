"""The rows of docs/en/performance.md, from the files in benchmarks/results.

A figure on that page is what the file holds; one that nobody has measured says so.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PICTURE = ROOT / "docs" / "assets" / "scaling.svg"
NOT_MEASURED = "not measured"
GROWN = "A token at the largest size costs, beside one at the cheapest"

Result = Mapping[str, Any]
Say = Callable[[str], str]


@dataclass(frozen=True)
class Claim:
    """One row: what is claimed, the least we accept, what we aim at, and where the figure is.

    Attributes:
        result: name of the result file, without its end.
        figure: reads it.
        benchmark: the script, where it is not called as the result is.
    """

    says: str
    floor: str
    aim: str
    result: str
    figure: Callable[[Result], str]
    benchmark: str


def _ratio(result: Result) -> str:
    return f"{result['ratio_cpu']:.2f}×"


def _whole_batch(result: Result) -> str:
    """Against the rival that takes all of the pass at once."""
    all_at_once = max(result["by_micro_batch"], key=int)
    return f"{result['by_micro_batch'][all_at_once]['ratio_cpu']:.2f}×"


def _both(result: Result) -> str:
    return f"{result['training']['ratio_cpu']:.2f}× / {result['sampling']['ratio_cpu']:.2f}×"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _trl(result: Result) -> str:
    return f"{result['trl']['ratio_cpu']:.2f}×"


CLAIMS: Sequence[Claim] = (
    Claim("RL step, short, vs transformers+PEFT loop, through HTTP with the real client",
          "1.8×", "2.3×", "rl_step", _ratio, "rl_step"),
    Claim("RL step, long (256+128), vs the same", "2.2×", "3×", "rl_step_long", _ratio, "rl_step"),
    Claim("RL step, short, vs TRL's GRPOTrainer", "1.8×", "2.3×", "rl_step_trl", _trl, "rl_step"),
    Claim("training pass, groups of 6, vs HF+PEFT padded", "2.6×", "3.5×", "train_step", _whole_batch, "train_step"),
    Claim("the same, vs HF+PEFT's quickest micro-batch", "2.6×", "3.5×", "train_step", _ratio, "train_step"),
    Claim("training pass, groups of 8, long (256+128), vs HF+PEFT padded",
          "2.6×", "3.5×", "train_step_long", _ratio, "train_step"),
    Claim("training pass without shared prefixes, vs HF+PEFT padded",
          "1.5×", "1.9×", "train_step_unshared", _whole_batch, "train_step"),
    Claim("the same, vs HF+PEFT's quickest micro-batch", "1.5×", "1.9×", "train_step_unshared", _ratio, "train_step"),
    Claim("sampling, 48 rows grouped with LoRA, vs HF+PEFT generate", "1.8×", "2.4×", "sampling", _ratio, "sampling"),
    Claim("the same, long (256+128)", "1.8×", "2.4×", "sampling_long", _ratio, "sampling"),
    Claim("peak memory of the pass vs HF+PEFT, short", "≤ 0.5×", "≤ 0.3×", "memory",
          lambda r: f"{r['ratio']:.2f}×", "memory"),
    Claim("peak memory of the pass vs HF+PEFT, long", "≤ 0.5×", "≤ 0.3×", "memory_long",
          lambda r: f"{r['ratio']:.2f}×", "memory"),
    Claim("8 adapters, same total tokens, vs one adapter: training / sampling",
          "≤ 1.35×", "≤ 1.2×", "many_adapters", _both, "many_adapters"),
    Claim("share of the whole short RL step's time that is not engine compute",
          "≤ 10 %", "≤ 5 %", "overhead", lambda r: f"{100 * r['share_not_engine']:.1f} %", "overhead"),
    Claim("longest gap between a sampler's tokens while a short training pass runs, in decode rounds",
          "bounded", "≤ 2", "latency_mix", lambda r: f"{r['cpu']['longest_gap']:.1f}", "latency_mix"),
    Claim("the same, long training pass", "bounded", "≤ 2", "latency_mix_long",
          lambda r: f"{r['cpu']['longest_gap']:.1f}", "latency_mix"),
    Claim("gradient vs HF+PEFT, relative", "1e-4", "2e-5", "train_step",
          lambda r: f"{r['gradient_error']:.1e}", "train_step"),
    Claim("sampler–trainer logprob, largest gap in nats", "1e-4", "2e-5", "parity",
          lambda r: f"{r['logprob_gap_max']:.1e}", "parity"),
    Claim("fraction of roofline, whole short RL step", "45 %", "60 %", "rl_step",
          lambda r: _percent(r["roofline"]["fraction_cpu"]), "rl_step"),
    Claim("48 rewards of 2 s in an RL step: seconds that they add, of the slowest kind",
          "≤ 4 s", "≤ 2.5 s", "slow_rewards", lambda r: f"{max(r['growth_s'].values()):.1f} s", "slow_rewards"),
    Claim("start: `mint serve` to first sampled token, model cached", "≤ 10 s", "≤ 5 s", "startup",
          lambda r: f"{r['seconds_to_first_token']:.1f} s", "startup"),
)  # fmt: skip


def read(name: str, folder: Path = RESULTS) -> Result | None:
    """A result; None where nobody has measured it."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def claims(say: Say, folder: Path = RESULTS) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Heads and rows of the table of claims."""
    missing, rows = say(NOT_MEASURED), []
    for claim in CLAIMS:
        result = read(claim.result, folder)
        rows.append((
            say(claim.says),
            claim.figure(result) if result else missing,
            say(claim.floor), claim.aim,
            f"[`{claim.benchmark}.py`](../../benchmarks/{claim.benchmark}.py)",
            _link(claim.result, result),
        ))  # fmt: skip
    heads = ("claim", "figure", "floor", "aim", "benchmark", "result")
    return [say(head) for head in heads], rows


def _link(name: str, result: Result | None) -> str:
    return f"[`{name}.json`](../../benchmarks/results/{name}.json)" if result else "–"


def machines(say: Say, folder: Path = RESULTS) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """What each quoted result was measured on."""
    rows = []
    for name in dict.fromkeys([*(claim.result for claim in CLAIMS), "scaling"]):
        if result := read(name, folder):
            told = result["machine"]
            software = (
                f"torch {told['torch']}, transformers {told['transformers']}, PEFT {told['peft']}"
            )
            rows.append((
                f"`{name}`", f"{told['cpu']}, {told['cores']}", str(result["workload"].get("threads")),
                software, f"`{told['commit']}`", told["date"], str(told["load_1m"]),
            ))  # fmt: skip
    heads = (
        "result",
        "processor, cores",
        "threads",
        "versions",
        "commit",
        "date",
        "load at the start",
    )
    return [say(head) for head in heads], rows or [(say(NOT_MEASURED), *[""] * (len(heads) - 1))]


SLOW_REWARDS = {
    "instant": "at once",
    "__call__": "`__call__`, a thread each",
    "acall": "`acall`",
    "score_batch": "`score_batch`, one call a group",
}
"""Kinds of rewards in slow_rewards.json, as a page says it."""


def slow_rewards(say: Say, folder: Path = RESULTS) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """What 48 slow rewards add to a step."""
    heads = [say("reward"), say("seconds of a step"), say("more than at once")]
    result = read("slow_rewards", folder)
    if not result:
        return heads, [(say(NOT_MEASURED), "", "")]
    return heads, [
        (say(shown), f"{result['step_s'][name]:.1f}", f"{result['growth_s'][name]:.1f}")
        for name, shown in SLOW_REWARDS.items()
    ]


def scaling(say: Say, folder: Path = RESULTS) -> str:
    """The picture of scaling.json, and its figures; or that there is none."""
    missing, picture, grown = say(NOT_MEASURED), say("CPU time per token"), say(GROWN)
    sampling, training = say("sampling"), say("training")
    result = read("scaling", folder)
    if not result:
        return missing
    growth = result["growth"]
    return "\n".join(
        (
            f"![{picture}](../assets/scaling.svg)",
            "",
            f"{grown}: {sampling} {growth['sampling']:.2f}×, {training} {growth['training']:.2f}× "
            "([`scaling.py`](../../benchmarks/scaling.py), "
            "[`scaling.json`](../../benchmarks/results/scaling.json)).",
        )
    )
