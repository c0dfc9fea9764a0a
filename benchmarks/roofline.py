"""What the arithmetic of a step costs at least, and what this machine's matrix unit gives at most.

A multiply and an add are two operations. Counted is what the mathematics needs, once:

    body(t)         2 t * (base linears + LoRA of one token) of all layers
    attention(c)    4 c H D a layer, for a token that sees c keys: its scores, and their mean of values
    head(t)         2 t E V

    sampling        every prompt's tokens once, and each sampled token but the last; the head where
                    a token is drawn, a prompt's first draw once for all its samples
    training        the tokens of the tree: each prompt once, each answer but its last token. The
                    backward of a frozen base computes only the inputs' gradient, so base and head
                    cost twice their forward, LoRA and attention three times theirs. The head with
                    gradient at answered positions, a prompt's last once for all its answers;
                    without at its other positions, whose logprobs the protocol returns too

Norms, rotations, softmax, drawing, Adam and all traffic with memory count as free. So 100 % is out
of reach, and how far below we stay is what all of that costs.

L layers, E width, H and K query and key heads, D their size, F the MLP's width, V vocabulary, R
rank.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of a decoder with gated MLP (Llama and Qwen are such), and of its adapter."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    rank: int

    @classmethod
    def read(cls, folder: Path, rank: int) -> "Sizes":
        """From the model's config.json."""
        told = json.loads((folder / "config.json").read_text())
        heads = told["num_attention_heads"]
        return cls(
            layers=told["num_hidden_layers"],
            width=told["hidden_size"],
            heads=heads,
            kv_heads=told.get("num_key_value_heads", heads),
            head_dim=told.get("head_dim") or told["hidden_size"] // heads,
            mlp=told["intermediate_size"],
            vocabulary=told["vocab_size"],
            rank=rank,
        )

    @property
    def linears(self) -> list[tuple[int, int]]:
        """(in, out) of each linear of a layer."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        e, f = self.width, self.mlp
        return [(e, q), (e, kv), (e, kv), (q, e), (e, f), (e, f), (f, e)]

    def base_flops(self) -> float:
        """Of one token, forward."""
        return 2.0 * self.layers * sum(i * o for i, o in self.linears)

    def lora_flops(self) -> float:
        """Of one token, forward."""
        return 2.0 * self.layers * self.rank * sum(i + o for i, o in self.linears)

    def attention_flops(self, keys: float) -> float:
        """Of tokens that see so many keys all together, forward."""
        return 4.0 * self.layers * keys * self.heads * self.head_dim

    def head_flops(self) -> float:
        """Of one position, forward."""
        return 2.0 * self.width * self.vocabulary


def sampling_flops(sizes: Sizes, prompts: Sequence[int], group: int, drawn: int) -> float:
    """Of drawing `drawn` tokens for each of `group` samples of prompts of these lengths."""
    rows = len(prompts) * group
    decoded = rows * (drawn - 1)
    keys = sum(_causal(n) for n in prompts)
    keys += sum(group * (_causal(n + drawn - 1) - _causal(n)) for n in prompts)
    return (
        (sum(prompts) + decoded) * (sizes.base_flops() + sizes.lora_flops())
        + sizes.attention_flops(keys)
        + (len(prompts) + decoded) * sizes.head_flops()
    )


def training_flops(sizes: Sizes, prompts: Sequence[int], group: int, answer: int) -> float:
    """Of forward and backward over `group` answers of `answer` tokens to each of these prompts."""
    inputs = group * (answer - 1)
    tokens = sum(prompts) + len(prompts) * inputs
    keys = sum(_causal(n) + group * (_causal(n + answer - 1) - _causal(n)) for n in prompts)
    graded = len(prompts) * (1 + inputs)
    scored = sum(prompts) - len(prompts)
    return (
        tokens * (2 * sizes.base_flops() + 3 * sizes.lora_flops())
        + 3 * sizes.attention_flops(keys)
        + (2 * graded + scored) * sizes.head_flops()
    )


def rl_step_flops(sizes: Sizes, prompts: Sequence[int], group: int, tokens: int) -> float:
    """Of one RL step: sample, then train on what was sampled."""
    return sampling_flops(sizes, prompts, group, tokens) + training_flops(
        sizes, prompts, group, tokens
    )


def _causal(n: int) -> float:
    """Keys that n tokens see from the first on, themselves included."""
    return n * (n + 1) / 2


@dataclass(frozen=True)
class Peak:
    """Floating-point operations a second of the quickest matrix product found here, in float32."""

    per_cpu_s: float
    per_wall_s: float
    plain_gflops: float
    """Of CPU time, with the weight as torch keeps it."""
    packed_gflops: float | None
    """The same with the weight in oneDNN's own layout; None where this build has no such."""


def measure_peak(seconds: float = 0.5) -> Peak:
    """Of products of 48 to 960 rows with a weight of 576 x 3072, by torch's threads as they are set.

    Args:
        seconds: of each candidate. Its best stretch counts, since others can only slow it down.
    """
    plain, packed = [], []
    weight = torch.randn(3072, 576)
    for rows in (48, 240, 960):
        x = torch.randn(rows, 576)
        flops = 2.0 * rows * 576 * 3072
        plain.append(_best(lambda x=x: F.linear(x, weight), flops, seconds))
        if product := _packed(weight, rows):
            packed.append(_best(lambda x=x, product=product: product(x), flops, seconds))
    cpu, wall = (max(column) for column in zip(*plain, *packed, strict=True))
    best_packed = max(cpu for cpu, _ in packed) / 1e9 if packed else None
    return Peak(cpu, wall, max(cpu for cpu, _ in plain) / 1e9, best_packed)


def _best(product: Callable[[], object], flops: float, seconds: float) -> tuple[float, float]:
    """Operations per CPU second and per wall second, of the best of some stretches of calls."""
    product()
    calls = max(1, round(4e9 / flops))  # long enough for the clocks
    rates: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while not rates or time.perf_counter() < end:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            product()
        done = calls * flops
        rates.append((done / (time.process_time() - cpu), done / (time.perf_counter() - wall)))
    cpu, wall = (max(column) for column in zip(*rates, strict=True))
    return cpu, wall


def _packed(weight: torch.Tensor, rows: int) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """A product with the weight packed by oneDNN; None where torch has not got it."""
    try:
        layout = torch.ops.mkldnn._reorder_linear_weight(weight.to_mkldnn(), rows)
        product = torch.ops.mkldnn._linear_pointwise
        product(torch.zeros(rows, weight.shape[1]), layout, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return None
    return lambda x: product(x, layout, None, "none", [], "")
