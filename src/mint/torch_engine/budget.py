"""How many packed tokens one micro-batch of training may have."""

import math
import re
from dataclasses import dataclass

import torch

from mint.torch_engine.course import BACKWARD_COST
from mint.torch_engine.decoder import Decoder

FEWEST = 128
"""Tokens. Below it the work around the products, and not the products, takes the time."""
_HALF = 0.5
"""Share of the free memory that activations may take: gradients on their way and the head's chunks
come on top, and sampling needs room to grow."""
_GROWTH = 2
"""Of a micro-batch, at most, where it spares repeated tokens."""


def activation_bytes(decoder: Decoder) -> int:
    """Saved for the backward per packed token, by estimate from above.

    A layer saves about 9 vectors of the model's width and 4 of the MLP's (counted: 1.30 MB a token
    for a model of 30 layers, 576 and 1536 wide; this says 1.36).
    """
    per_layer = 9 * decoder.width + 4 * decoder.inner_width
    return decoder.layers * per_layer * decoder.dtype.itemsize


@dataclass(frozen=True)
class Budget:
    """Of one micro-batch, in packed tokens."""

    memory: int
    """What memory has room for. A single datum above it is computed with layers done twice."""
    batch: int
    """Where micro-batches are cut: not above `memory`, and less while sequences are decoded."""
    grown: int = 0
    """Where they are cut if that spares computing a shared beginning again and again. Larger ones
    multiply a little slower, so it is for no other reason. 0: as `batch`."""


def needed_bytes(decoder: Decoder, tokens: int) -> int:
    """What has to be free for a budget's `memory` to be so many tokens."""
    return math.ceil(tokens * activation_bytes(decoder) / _HALF)


def cut(decoder: Decoder, most: int, round_tokens: float | None) -> int:
    """Where micro-batches are cut, memory aside; arguments as of `budget`."""
    if round_tokens is None:
        return most
    return min(most, max(FEWEST, int(round_tokens * decoder.layers / BACKWARD_COST)))


def budget(decoder: Decoder, free_bytes: int, most: int, round_tokens: float | None) -> Budget:
    """Cut by what is free, by the setting, and so that one layer of the batch costs no more than
    one decode round: training pauses only between layers.

    Args:
        free_bytes: memory that may be taken now.
        most: the setting.
        round_tokens: cost of a decode round in forward tokens; None while nobody samples.
    """
    memory = max(FEWEST, int(_HALF * free_bytes) // activation_bytes(decoder))
    grown = min(memory, _GROWTH * most) if round_tokens is None else 0
    return Budget(memory, min(memory, cut(decoder, most, round_tokens)), grown)


_OUT_OF_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch ran out of memory: on a CPU it has no error class for that."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY.search(str(error)))
