"""What does it cost to serve eight adapters, with the same tokens as one?

Training: 8 groups of 6 answers, once as one pass of one adapter, once as eight passes of eight
adapters that all wait at once, a group each. Sampling: 8 prompts x 6 answers, once of one adapter,
once of eight, a prompt each. Prompts of 20 to 28 tokens, answers of 16, rank 16.

The figure is a ratio of medians, eight over one, in one run, in turns. 1.0: others are for free.

    python -m benchmarks.many_adapters [--adapters 8] [--repeats 5] [--save]

Prints a table, and a last line of JSON.
"""

import argparse
import itertools
import random
import tempfile
from pathlib import Path

import torch

from benchmarks import harness, ours, rivals
from benchmarks.ours import Ours
from benchmarks.workloads import random_answers, random_tokens
from mint.core.datum import Datum
from mint.core.ids import ModelId

GROUP = 6


class Adapters:
    """One adapter, or several, with the same tokens to train on and to draw."""

    def __init__(self, args: argparse.Namespace, engine: Ours) -> None:
        self._engine, self._args = engine, args
        self._vocabulary = rivals.vocabulary(args.model)
        answers = random_answers(args.adapters, GROUP, 24, 16, self._vocabulary)
        self._data: list[Datum] = [ours.datum(answer) for answer in answers]
        self._models: list[ModelId] = [engine.create(args.rank) for _ in range(args.adapters)]
        for model_id in self._models:
            engine.learn(model_id, self._data[:2])
        self._samplers = [engine.pin(model_id) for model_id in self._models]
        self._seeds = itertools.count()

    def train(self, count: int) -> None:
        """One pass over all data, or as many as there are adapters over a share of it each."""
        share = len(self._data) // count
        self._engine.run(
            *(
                ours.policy_pass(model_id, self._data[i * share : (i + 1) * share])
                for i, model_id in enumerate(self._models[:count])
            )
        )

    def sample(self, count: int) -> None:
        """New prompts each time, so that none is known from before."""
        rng = random.Random(next(self._seeds))
        self._engine.run(
            *(
                self._engine.sample(
                    self._samplers[i % count],
                    random_tokens(rng, 20 + i % 9, self._vocabulary),
                    GROUP,
                    16,
                )
                for i in range(self._args.adapters)
            )
        )


def arguments() -> argparse.Namespace:
    parser = harness.arguments(__doc__)
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rank", type=int, default=16)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    told = harness.before(args)
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        adapters = Adapters(args, Ours(args.model, Path(scratch), threads=args.threads))
        systems = {
            f"{what}, {count}": lambda work=work, count=count: work(count)
            for what, work in (("training", adapters.train), ("sampling", adapters.sample))
            for count in (1, args.adapters)
        }
        for system in systems.values():
            system()
        median = {
            name: harness.median(took)
            for name, took in harness.in_turns(systems, args.repeats).items()
        }
    print(harness.table(["adapters", "wall s", "CPU s"],
                        [(name, took.wall_s, took.cpu_s) for name, took in median.items()]))  # fmt: skip
    figures: dict[str, object] = {
        what: harness.ratios(median[f"{what}, {args.adapters}"], median[f"{what}, 1"])
        for what in ("training", "sampling")
    }
    print(f"\n{args.adapters} over 1: {figures}")
    figures["seconds"] = harness.seconds(median)
    harness.report(harness.result_name("many_adapters", args), figures, told, save=args.save)


if __name__ == "__main__":
    main()
