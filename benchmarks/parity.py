"""How far is what the trainer computes for a drawn token from what the sampler said?

Through a `mint serve` and the real client: an adapter that has taken one step (at a rate high
enough to be felt) is sampled from, 8 prompts x 6 answers of 16 tokens at temperature 1, then a
forward pass over the same sequences under the same weights gives each token's log-probability
again. Equal numbers would mean equal arithmetic; the difference is what batches, packing and the
number format leave.

The figures are the longest and the mean |trainer - sampler| in nats. A ratio of probabilities is
off by about as much.

    python -m benchmarks.parity [--dtype bfloat16] [--save]

Prints a table, and a last line of JSON.
"""

import argparse

from tokenizers import Tokenizer

import mint
from benchmarks import harness
from benchmarks.rivals import model_folder
from benchmarks.rl_step import datum, gap
from benchmarks.served import Served, served
from benchmarks.workloads import SHORT, arithmetic_prompts
from mint import types


def measure(args: argparse.Namespace, server: Served) -> dict[str, float]:
    """Sample, step, sample again with the new weights, and compare."""
    tokenizer = Tokenizer.from_file(str(model_folder(args.model) / "tokenizer.json"))
    prompts = arithmetic_prompts(lambda text: tokenizer.encode(text).ids, 0, SHORT)
    service = mint.ServiceClient(base_url=server.url, api_key=server.key)
    training = service.create_lora_training_client(server.model, rank=args.rank).result()
    data = draw(training, prompts)
    training.forward_backward(data, "importance_sampling").result()
    training.optim_step(types.AdamParams(learning_rate=args.rate)).result()
    data = draw(training, prompts)
    passed = training.forward(data, "importance_sampling").result()
    tokens = sum(one.model_input.length for one in data) - sum(
        (len(prompt) - 1) * SHORT.group for prompt in prompts
    )
    return {"tokens": tokens, **gap(data, passed.loss_fn_outputs)}


def draw(training: mint.TrainingClient, prompts: list[list[int]]) -> list[types.Datum]:
    """Answers of the present weights; their advantages are +1 and -1 in turn."""
    sampler = training.save_weights_and_get_sampling_client().result()
    params = types.SamplingParams(max_tokens=SHORT.max_tokens, temperature=1.0, stop=[])
    asked = [sampler.sample(types.ModelInput.from_ints(p), SHORT.group, params) for p in prompts]
    return [
        datum(prompt, sequence, (-1.0) ** i)
        for prompt, future in zip(prompts, asked, strict=True)
        for i, sequence in enumerate(future.result().sequences)
    ]


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of the step")
    args = parser.parse_args()
    told = harness.before(args)
    with served(args.model, threads=args.threads, dtype=args.dtype) as server:
        figures = measure(args, server)
    print(harness.table(list(figures), [[float(f"{v:.3g}") for v in figures.values()]]))
    harness.report(harness.result_name("parity", args), figures, told, save=args.save)


if __name__ == "__main__":
    main()
