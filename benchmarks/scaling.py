"""Does cost grow linearly, with requests at once and with tokens of a datum?

Through a `mint serve` and the real client, CPU seconds of client, API and engine together:

- sampling: 1, 2, 4, ... 64 requests at once, each of one answer of 16 tokens to a prompt of its
  own of 24. Figure: CPU seconds per drawn token. Falling: a batch is cheaper than its parts.
- training: a `cross_entropy` pass over 2 datums of 64, 128, ... 2,048 tokens, which share nothing.
  Figure: CPU seconds per token. Rising: attention, which looks at every pair.

Linear would be a level line. "growth" is how many times as much a token costs at the largest size
as at the cheapest one.

    python -m benchmarks.scaling [--repeats 3] [--save]

Prints a table, and a last line of JSON; with --save also docs/assets/scaling.svg.
"""

import argparse
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import mint
from benchmarks import harness, plot, rivals
from benchmarks.machine import ROOT
from benchmarks.served import Served, served
from benchmarks.workloads import random_tokens
from mint import types

PICTURE = ROOT / "docs" / "assets" / "scaling.svg"
PROMPT, DRAWN, DATUMS = 24, 16, 2


class Client:
    """A script that samples and trains in any size; fresh tokens each time."""

    def __init__(self, args: argparse.Namespace, server: Served) -> None:
        self._vocabulary = rivals.vocabulary(args.model)
        self._seeds = itertools.count()
        service = mint.ServiceClient(base_url=server.url, api_key=server.key)
        self._training = service.create_lora_training_client(
            server.model, rank=args.rank, train_unembed=False
        ).result()
        self._sampler = self._training.save_weights_and_get_sampling_client().result()

    def _tokens(self, count: int) -> list[int]:
        return random_tokens(random.Random(next(self._seeds)), count, self._vocabulary)

    def sample(self, requests: int) -> int:
        """All at once; the tokens drawn."""
        params = types.SamplingParams(max_tokens=DRAWN, temperature=1.0, stop=[])
        asked = [
            self._sampler.sample(types.ModelInput.from_ints(self._tokens(PROMPT)), 1, params)
            for _ in range(requests)
        ]
        return sum(len(future.result().sequences[0].tokens) for future in asked)

    def train(self, length: int) -> int:
        """One pass; the tokens it trains."""
        data = [self._datum(self._tokens(length + 1)) for _ in range(DATUMS)]
        self._training.forward_backward(data, "cross_entropy").result()
        return DATUMS * length

    def _datum(self, tokens: list[int]) -> types.Datum:
        inputs: Any = {"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)}
        return types.Datum(
            model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs
        )


def per_token(
    work: Callable[[int], int], sizes: Sequence[int], repeats: int, cpu_s: Callable[[], float]
) -> dict[int, float]:
    """Median CPU milliseconds per token for each size, the sizes in turns."""
    tokens = {size: work(size) for size in sizes}  # and warm
    took: dict[int, list[harness.Took]] = {size: [] for size in sizes}
    for _ in range(repeats):
        for size in sizes:
            took[size].append(harness.timed(lambda size=size: work(size), cpu_s))
    return {
        size: round(1000 * harness.median(took[size]).cpu_s / tokens[size], 4) for size in sizes
    }


def growth(found: dict[int, float]) -> float:
    return round(found[max(found)] / min(found.values()), 3)


def arguments() -> argparse.Namespace:
    parser = harness.arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 2048])
    return parser.parse_args()


def main() -> None:
    args = arguments()
    told = harness.before(args)
    with served(args.model, threads=args.threads) as server:
        client = Client(args, server)
        sampling = per_token(client.sample, args.requests, args.repeats, server.cpu_with_client_s)
        training = per_token(client.train, args.lengths, args.repeats, server.cpu_with_client_s)
    print(harness.table(("requests at once", "CPU ms per drawn token"), sampling.items()))
    print()
    print(harness.table(("tokens per datum", "CPU ms per trained token"), training.items()))
    figures = {
        "sampling_ms": sampling,
        "training_ms": training,
        "growth": {"sampling": growth(sampling), "training": growth(training)},
    }
    harness.report(harness.result_name("scaling", args), figures, told, save=args.save)
    if args.save:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(plot.scaling(sampling, training))


if __name__ == "__main__":
    main()
