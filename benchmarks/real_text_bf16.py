"""What does bfloat16 do to a gradient on real text?

On random token ids it was seen to be off by 6 to 65 %, which is a harsh case. Here: passages of 96
tokens from this project's own pages, in English, and as many random ids beside them. The gradient
of the same adapter (rank 16, all linears of attention and MLP, one step old) is taken three times:
by the engine in float32, by the engine with base weights and activations in bfloat16, and by
transformers with peft in bfloat16 (its adapter stays float32, as ours does).

The loss is -sum w log p over all tokens of a passage. Once w is 1: supervised learning. Once +1 and
-1 in turn over the passages, as advantages are in a policy gradient: what the passages have in
common cancels, and rounding weighs more.

Figures, against float32, over all LoRA weights: relative error (L2 of the difference over L2), and
cosine, which is what an optimizer step feels: 1 is the same direction.

    python -m benchmarks.real_text_bf16 [--passages 8] [--save]

Prints a table, and a last line of JSON.
"""

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from benchmarks import harness, ours, rivals
from benchmarks.machine import ROOT
from benchmarks.ours import Gradient, Ours
from benchmarks.workloads import random_tokens
from mint.core.datum import Datum
from mint.core.ids import ModelId
from mint.core.model_input import ModelInput
from mint.core.operations import ForwardBackward, OptimStep
from mint.core.optim import AdamParams

PAGES = ("README.md", "CONTRIBUTING.md", "docs/en/concepts.md", "docs/en/checkpoints.md")
WEIGHTS = {"supervised": (1.0, 1.0), "advantages": (1.0, -1.0)}
"""Of the even passages, and of the odd ones."""


@dataclass(frozen=True)
class Passage:
    tokens: list[int]
    weight: float


def texts(args: argparse.Namespace) -> dict[str, list[list[int]]]:
    """Token ids of real text, from anywhere on the pages, and random ones."""
    tokenizer = Tokenizer.from_file(str(rivals.model_folder(args.model) / "tokenizer.json"))
    ids = tokenizer.encode("\n\n".join((ROOT / page).read_text() for page in PAGES)).ids
    rng, vocabulary = random.Random(args.seed), rivals.vocabulary(args.model)
    starts = [rng.randrange(len(ids) - args.length) for _ in range(args.passages)]
    return {
        "real text": [ids[at : at + args.length] for at in starts],
        "random ids": [random_tokens(rng, args.length, vocabulary) for _ in starts],
    }


def weighted(passages: Sequence[list[int]], weights: tuple[float, float]) -> list[Passage]:
    return [Passage(tokens, weights[i % 2]) for i, tokens in enumerate(passages)]


def datum(passage: Passage) -> Datum:
    targets = np.asarray(passage.tokens[1:], dtype=np.int64)
    weights = np.full(len(targets), passage.weight, dtype=np.float32)
    return Datum(
        ModelInput.from_ints(passage.tokens[:-1]), {"target_tokens": targets, "weights": weights}
    )


@dataclass(frozen=True)
class Engine:
    """One number format, and the adapter in it."""

    ours: Ours
    model_id: ModelId

    @classmethod
    def make(cls, args: argparse.Namespace, scratch: Path, dtype: str) -> "Engine":
        made = Ours(args.model, scratch / dtype, threads=args.threads, dtype=dtype)
        return cls(made, made.create(args.rank))

    def passing(self, passages: Sequence[Passage]) -> ForwardBackward:
        data = tuple(datum(passage) for passage in passages)
        return ForwardBackward(model_id=self.model_id, data=data, loss_fn="cross_entropy")

    def gradient(self, passages: Sequence[Passage]) -> Gradient:
        return self.ours.gradient(self.passing(passages))

    def learn(self, passages: Sequence[Passage]) -> Path:
        """One step, and the adapter after it: a new one's B is 0, and A's gradient with it."""
        step = OptimStep(model_id=self.model_id, params=AdamParams(learning_rate=1e-3))
        self.ours.run(self.passing(passages), step)
        return self.ours.save(self.model_id)


def peft_gradient(model: Any, passages: Sequence[Passage]) -> Gradient:
    model.zero_grad()
    for passage in passages:
        tokens_T = torch.tensor(passage.tokens)
        logits_TV = model(input_ids=tokens_T[None], use_cache=False).logits[0, :-1]
        logprobs_T = logits_TV.float().log_softmax(-1).gather(-1, tokens_T[1:, None])
        (-passage.weight * logprobs_T.sum()).backward()
    return rivals.gradient(model)


def arguments() -> argparse.Namespace:
    parser = harness.arguments(__doc__)
    parser.add_argument("--passages", type=int, default=8)
    parser.add_argument("--length", type=int, default=96, help="tokens of a passage")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0, help="of the places and the random ids")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    told, found = harness.before(args), texts(args)
    torch.set_num_threads(args.threads)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        exact = Engine.make(args, Path(temporary), "float32")
        coarse = Engine.make(args, Path(temporary), "bfloat16")
        folder = exact.learn(weighted(found["real text"], (1.0, 1.0)))
        coarse.ours.load(coarse.model_id, folder)
        peft = rivals.load_peft(args.model, rank=args.rank, dtype="bfloat16", adapter=folder)
        for text, passages in found.items():
            for name, weights in WEIGHTS.items():
                given = weighted(passages, weights)
                truth = exact.gradient(given)
                figures[f"{text}, {name}"] = {
                    "engine": against(coarse.gradient(given), truth),
                    "peft": against(peft_gradient(peft, given), truth),
                }
    rows = [
        (case, *(value for system in systems.values() for value in system.values()))
        for case, systems in figures.items()
    ]
    heads = ("", "engine error", "engine cosine", "peft error", "peft cosine")
    print(harness.table(heads, rows))
    name = harness.result_name("real_text_bf16", args)
    harness.report(name, {"cases": figures}, told, save=args.save)


def against(gradient: Gradient, truth: Gradient) -> dict[str, float]:
    return {
        "error": round(ours.relative_error(gradient, truth), 5),
        "cosine": round(ours.cosine(gradient, truth), 5),
    }


if __name__ == "__main__":
    main()
