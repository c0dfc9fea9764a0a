"""How long does one training pass take beside transformers with peft, and is it the same gradient?

The pass: forward and backward of `importance_sampling` over groups of answers to shared prompts,
LoRA of rank 16 on all linears of attention and MLP. Once by the engine, called in this process;
once by transformers with peft, right-padded batches, logits only where answers are, as a user would
write it by hand. Both get the same weights, tokens and advantages.

Sizes: 8 groups of 6 answers of 16 tokens to prompts of 20 to 28; --long 4 groups of 8, 128 tokens
to prompts of 256; --unshared 48 prompts with one answer each, so that nothing is shared.

- ratio: medians, peft over engine: above 1, the engine is quicker. peft computes in micro-batches
  of a size of the user's, and each of --micro-batch takes turns with the engine. "ratio" is
  against the quickest of them, the others are beside it.
- gradient error: L2 of (engine - peft) over L2 of peft, all LoRA weights, float32, on the first two
  groups, after one optimizer step (a new adapter's B is 0, and A's gradient with it).

    python -m benchmarks.train_step [--long | --unshared] [--repeats 5] [--save]

Prints a table, and a last line of JSON.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks import harness, ours, rivals
from benchmarks.ours import Ours
from benchmarks.workloads import Answer, random_answers
from mint.core.ids import ModelId

ENGINE, PEFT = "engine", "transformers + peft"


def arguments() -> argparse.Namespace:
    parser = harness.pass_arguments(__doc__, unshared=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--micro-batch", type=int, nargs="+", default=[8, 16, 48], help="of peft")
    return harness.sized(parser.parse_args())


class Pass:
    """The same pass by both, from the same weights."""

    def __init__(self, args: argparse.Namespace, engine: Ours, answers: Sequence[Answer]) -> None:
        self._engine, self._answers = engine, answers
        self._data = [ours.datum(answer) for answer in answers]
        self._model_id: ModelId = engine.create(args.rank)
        engine.learn(self._model_id, self._data[:2])
        folder = engine.save(self._model_id)
        self._peft = rivals.load_peft(args.model, rank=args.rank, dtype=args.dtype, adapter=folder)

    def by_engine(self) -> float:
        return ours.loss_of(self._engine.run(ours.policy_pass(self._model_id, self._data))[0])

    def by_peft(self, micro_batch: int) -> float:
        """Its loss. Gradients are cleared, which is not what takes time."""
        passed = rivals.policy_pass(self._peft, rivals.rows(self._answers), micro_batch)
        self._peft.zero_grad()
        return passed.loss

    def gradient_error(self, count: int) -> float:
        """Of the first `count` answers."""
        data, answers = self._data[:count], self._answers[:count]
        mine = self._engine.gradient(ours.policy_pass(self._model_id, data))
        rivals.policy_pass(self._peft, rivals.rows(answers), count)
        theirs = rivals.gradient(self._peft)
        self._peft.zero_grad()
        return ours.relative_error(mine, theirs)


def main() -> None:
    args = arguments()
    told = harness.before(args)
    torch.set_num_threads(args.threads)
    vocabulary = rivals.vocabulary(args.model)
    answers = random_answers(args.groups, args.answers, args.prompt, args.length, vocabulary)
    with tempfile.TemporaryDirectory() as scratch:
        engine = Ours(args.model, Path(scratch), threads=args.threads, dtype=args.dtype)
        passes = Pass(args, engine, answers)
        error = passes.gradient_error(2 * args.answers)  # warms both up, too
        losses = {ENGINE: passes.by_engine(), PEFT: passes.by_peft(args.micro_batch[0])}
        check_same(losses, args.dtype)
        systems: dict[str, Callable[[], float]] = {ENGINE: passes.by_engine} | {
            str(size): lambda size=size: passes.by_peft(size) for size in args.micro_batch
        }
        median = {
            name: harness.median(took)
            for name, took in harness.in_turns(systems, args.repeats).items()
        }
    show(args, median, losses, error, told)


def check_same(losses: dict[str, float], dtype: str) -> None:
    mine, theirs = losses.values()
    if dtype == "float32" and abs(mine - theirs) > 1e-3 * max(1.0, abs(theirs)):
        raise SystemExit(f"not the same work: {losses}")


def show(
    args: argparse.Namespace,
    median: dict[str, harness.Took],
    losses: dict[str, float],
    error: float,
    told: dict[str, object],
) -> None:
    engine = median.pop(ENGINE)
    by_size = {size: harness.ratios(took, engine) for size, took in median.items()}
    rows = [[ENGINE, engine.wall_s, engine.cpu_s, 1.0]] + [
        [f"{PEFT}, {size} at once", took.wall_s, took.cpu_s, by_size[size]["ratio_cpu"]]
        for size, took in median.items()
    ]
    print(harness.table(["", "wall s", "CPU s", "CPU, in ours"], rows))
    quickest = min(median, key=lambda size: median[size].cpu_s)
    print(f"\nratio {by_size[quickest]}, {quickest} at once; gradient error {error:.2g}")
    figures = {
        **by_size[quickest],
        "quickest_micro_batch": int(quickest),
        "by_micro_batch": by_size,
        "gradient_error": float(f"{error:.3g}"),
        "seconds": harness.seconds({ENGINE: engine, **median}),
        "loss": losses,
    }
    name = harness.result_name("train_step", args, "long", "unshared")
    harness.report(name, figures, told, save=args.save)


if __name__ == "__main__":
    main()
