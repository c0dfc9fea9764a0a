"""How quickly are tokens drawn with an adapter, beside transformers with peft?

Rows are sequences drawn side by side: 1*1, 2 prompts * 4, 8*6, and 16*3, the last with 1, 4 and
16 adapters in turn over the prompts. Prompts of 20 to 28 tokens, 16 drawn; --long 256 and 128.
Temperature 1, every token with its log-probability, nothing ends a sequence early.

The engine is called in this process. The rival is generate() over the whole batch, always with one
adapter: several in a batch would cost it more. A cell's rows repeat with new prompts of the same
lengths each time, so that no prefix is known from before.

- ratio: medians, peft over engine, for the same rows: above 1, the engine is quicker.
- adapters: the engine's CPU seconds with 4 and with 16 adapters over those with 1.

    python -m benchmarks.sampling [--long] [--dtype bfloat16] [--repeats 5] [--save]

Prints a table, and a last line of JSON.
"""

import argparse
import itertools
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import harness, ours, rivals
from benchmarks.ours import Ours
from benchmarks.workloads import random_answers, random_tokens
from mint.core.ids import SamplerId

ENGINE, PEFT = "engine", "transformers + peft"


@dataclass(frozen=True)
class Cell:
    """Rows of one batch: `group` samples of each prompt."""

    prompts: int
    group: int
    adapters: int = 1

    @property
    def name(self) -> str:
        with_adapters = f"*{self.adapters}" if self.adapters > 1 else ""
        return f"{self.prompts}*{self.group}{with_adapters}"


CELLS = (Cell(1, 1), Cell(2, 4), Cell(8, 6), Cell(16, 3), Cell(16, 3, 4), Cell(16, 3, 16))
CLAIMED = Cell(8, 6)
"""The one that the table of claims is about."""


class Sampling:
    """Both systems, and prompts for them."""

    def __init__(self, args: argparse.Namespace, engine: Ours) -> None:
        self._args, self._engine = args, engine
        self._vocabulary = rivals.vocabulary(args.model)
        self._seeds = itertools.count()
        self._samplers = [self._adapter() for _ in range(max(cell.adapters for cell in CELLS))]
        self._peft: Any = rivals.load_peft(args.model, rank=args.rank, dtype=args.dtype)

    def _adapter(self) -> SamplerId:
        """An adapter that has learnt something, pinned."""
        model_id = self._engine.create(self._args.rank)
        answers = random_answers(1, 2, 8, 4, self._vocabulary)
        self._engine.learn(model_id, [ours.datum(answer) for answer in answers])
        return self._engine.pin(model_id)

    def _prompts(self, cell: Cell) -> list[list[int]]:
        rng, n = random.Random(next(self._seeds)), self._args.prompt
        spread = 4 if n < 64 else 0
        return [
            random_tokens(rng, n + (-spread, 0, spread)[i % 3], self._vocabulary)
            for i in range(cell.prompts)
        ]

    def by_engine(self, cell: Cell) -> None:
        self._engine.run(
            *(
                self._engine.sample(
                    self._samplers[i % cell.adapters], prompt, cell.group, self._args.length
                )
                for i, prompt in enumerate(self._prompts(cell))
            )
        )

    def by_peft(self, cell: Cell) -> None:
        rivals.generate(self._peft, self._prompts(cell), cell.group, self._args.length)


def arguments() -> argparse.Namespace:
    parser = harness.arguments(__doc__)
    parser.add_argument("--long", action="store_true", help="prompts of 256 tokens, 128 drawn")
    parser.add_argument("--prompt", type=int, help="tokens of a prompt, in place of the size's")
    parser.add_argument("--length", type=int, help="tokens drawn, in place of the size's")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--cells", nargs="+", default=[cell.name for cell in CELLS],
                        choices=[cell.name for cell in CELLS])  # fmt: skip
    args = parser.parse_args()
    prompt, length = (256, 128) if args.long else (24, 16)
    args.prompt, args.length = args.prompt or prompt, args.length or length
    return args


def measure(sampling: Sampling, cell: Cell, repeats: int) -> dict[str, harness.Took]:
    """Medians of both. peft draws with one adapter, so it is not asked again for several."""
    systems: dict[str, Callable[[], None]] = {ENGINE: lambda: sampling.by_engine(cell)}
    if cell.adapters == 1:
        systems[PEFT] = lambda: sampling.by_peft(cell)
    for system in systems.values():
        system()
    took = harness.in_turns(systems, repeats)
    return {name: harness.median(rows) for name, rows in took.items()}


def main() -> None:
    args = arguments()
    told = harness.before(args)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    medians: dict[Cell, dict[str, harness.Took]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        sampling = Sampling(
            args, Ours(args.model, Path(scratch), threads=args.threads, dtype=args.dtype)
        )
        for cell in CELLS:
            if cell.name in args.cells:
                medians[cell] = measure(sampling, cell, args.repeats)
    show(args, medians, told)


def show(
    args: argparse.Namespace,
    medians: dict[Cell, dict[str, harness.Took]],
    told: dict[str, object],
) -> None:
    heads = (
        "prompts*samples*adapters",
        "engine CPU s",
        "peft CPU s",
        "ratio CPU",
        "ratio wall",
        "engine tokens/CPU s",
    )
    rows, cells = [], {}
    for cell, median in medians.items():
        rival = median.get(PEFT) or medians.get(Cell(cell.prompts, cell.group), {}).get(PEFT)
        ratios = harness.ratios(rival, median[ENGINE]) if rival else {}
        rate = round(cell.prompts * cell.group * args.length / median[ENGINE].cpu_s, 1)
        cells[cell.name] = {
            **ratios, "tokens_per_cpu_s": rate, "seconds": harness.seconds(median),
        }  # fmt: skip
        rows.append((
            cell.name, median[ENGINE].cpu_s, rival.cpu_s if rival else "",
            ratios.get("ratio_cpu", ""), ratios.get("ratio_wall", ""), rate,
        ))  # fmt: skip
    print(harness.table(heads, rows))
    alone = medians.get(Cell(16, 3))
    adapters = {
        str(cell.adapters): round(median[ENGINE].cpu_s / alone[ENGINE].cpu_s, 3)
        for cell, median in medians.items()
        if alone and cell.adapters > 1
    }
    print(f"\nadapters, against one: {adapters}")
    claimed = cells.get(CLAIMED.name, {})
    figures = {
        "ratio_cpu": claimed.get("ratio_cpu"),
        "ratio_wall": claimed.get("ratio_wall"),
        "adapters": adapters,
        "cells": cells,
    }
    name = harness.result_name("sampling", args, "long")
    harness.report(name, figures, told, save=args.save)


if __name__ == "__main__":
    main()
