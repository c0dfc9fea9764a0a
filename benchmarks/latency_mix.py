"""How long does a sampler wait for its next token while a training pass runs?

24 sequences are drawn all along, beside 24 more of which one ends after each round of decoding
(their lengths are 1, 2, 3, ...), so that the end of every round is seen from outside. Once
undisturbed, once with a training pass that is started after the first round: 8 groups of 6 answers
of 16 tokens to prompts of 24; --long 4 groups of 8, 256 + 128.

A gap is the time from the end of one round to the end of the next. Given are the median and the
longest gap while the pass runs, in units of the median round undisturbed, by this process's CPU
seconds (nothing else runs in it; wall seconds too). 1.0: the pass is not felt. Then what sampling
costs the pass: its CPU seconds until it ended, with all rounds in between, over those alone.

    python -m benchmarks.latency_mix [--long] [--repeats 3] [--save]

Prints a table, and a last line of JSON.
"""

import argparse
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks import harness, ours, rivals
from benchmarks.harness import Took
from benchmarks.ours import Ours
from benchmarks.workloads import random_answers, random_tokens
from mint.core.operations import SampleResult

STEADY = 24
"""Sequences that are drawn all along."""


@dataclass(frozen=True)
class Mixed:
    """What one run saw."""

    gaps: list[Took]
    """From the second round on; while the pass ran, where there was one."""
    passed: Took | None
    """From the start of the pass to its end."""


def now() -> Took:
    return Took(time.perf_counter(), time.process_time())


def since(start: Took, end: Took) -> Took:
    return Took(end.wall_s - start.wall_s, end.cpu_s - start.cpu_s)


class Mix:
    """An engine with sequences to draw and a pass to compute."""

    def __init__(self, args: argparse.Namespace, engine: Ours) -> None:
        self._engine, self._rounds = engine, args.rounds
        self._vocabulary = rivals.vocabulary(args.model)
        model_id = engine.create(args.rank)
        size = (args.groups, args.answers, args.prompt, args.length)
        data = [ours.datum(answer) for answer in random_answers(*size, self._vocabulary)]
        engine.learn(model_id, data[:2])
        self._pass = ours.policy_pass(model_id, data)
        self._sampler = engine.pin(model_id)
        self._seeds = itertools.count()

    def alone(self) -> Took:
        """The pass, and nothing else."""
        return harness.timed(lambda: self._engine.run(self._pass))

    def run(self, training: bool) -> Mixed:
        """Draw for some rounds; start a pass after the first, if there is to be one."""
        for sample in self._samples():
            self._engine.start(sample)
        ends: list[Took] = []
        started = finished = None
        while self._engine.engine.busy:
            ended = self._engine.step()
            if any(isinstance(result, SampleResult) for result in ended.values()):
                ends.append(now())
                if training and len(ends) == 1:
                    self._engine.start(self._pass)
                    started = now()
            if started and any(not isinstance(r, SampleResult) for r in ended.values()):
                finished = now()
        return _mixed(ends, started, finished)

    def _samples(self) -> list:
        prompt = random_tokens(random.Random(next(self._seeds)), 24, self._vocabulary)
        steady = self._engine.sample(self._sampler, prompt, STEADY, self._rounds + 1)
        return [steady] + [
            self._engine.sample(self._sampler, prompt, 1, n + 1) for n in range(self._rounds)
        ]


def _mixed(ends: Sequence[Took], started: Took | None, finished: Took | None) -> Mixed:
    """The round that the pass's end falls into still felt it; later ones did not."""
    pairs = list(itertools.pairwise(ends))
    if started is None or finished is None:
        return Mixed([since(*pair) for pair in pairs], None)
    felt = [pair for pair in pairs if pair[0].wall_s < finished.wall_s]
    return Mixed([since(*pair) for pair in felt], since(started, finished))


def arguments() -> argparse.Namespace:
    parser = harness.pass_arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=24, help="of decoding that are watched")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rank", type=int, default=16)
    return harness.sized(parser.parse_args())


def main() -> None:
    args = arguments()
    told = harness.before(args)
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        mix = Mix(args, Ours(args.model, Path(scratch), threads=args.threads))
        mix.run(training=False)  # both warm up
        alone, quiet, busy = [mix.alone()], [], []
        for _ in range(args.repeats):
            alone.append(mix.alone())
            quiet.append(mix.run(training=False))
            busy.append(mix.run(training=True))
    show(args, alone[1:], quiet, busy, told)


def show(
    args: argparse.Namespace,
    alone: list[Took],
    quiet: list[Mixed],
    busy: list[Mixed],
    told: dict[str, object],
) -> None:
    figures: dict[str, object] = {}
    rows = []
    for unit in ("cpu_s", "wall_s"):
        still = [getattr(gap, unit) for run in quiet for gap in run.gaps]
        during = [[getattr(gap, unit) for gap in run.gaps] for run in busy]
        passes = [getattr(run.passed, unit) for run in busy]
        round_s = statistics.median(still)
        found = {
            "round_s": round_s,
            "longest_quiet": max(still) / round_s,
            "median_gap": statistics.median(g for gaps in during for g in gaps) / round_s,
            "longest_gap": statistics.median(max(gaps) for gaps in during) / round_s,
            "rounds_during_pass": statistics.median(len(gaps) for gaps in during),
            "pass_ratio": statistics.median(passes)
            / statistics.median(getattr(took, unit) for took in alone),
        }
        figures[unit.removesuffix("_s")] = {key: round(v, 4) for key, v in found.items()}
        rows.append((unit, *found.values()))
    heads = ("", "round s", "longest, undisturbed", "median gap", "longest gap",
             "rounds during the pass", "pass with sampling / alone")  # fmt: skip
    print(harness.table(heads, rows))
    name = harness.result_name("latency_mix", args, "long")
    harness.report(name, figures, told, save=args.save)


if __name__ == "__main__":
    main()
