"""The next token of every row, from hidden states; the vocabulary of a few rows at a time.

Shapes: B sequences, P prompts, E model width, V vocabulary.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Row

import numpy as np
import torch
from torch import Tensor

from mint.torch_engine.decoder import Decoder
from mint.torch_engine.prompt_scores import LOGITS_AT_ONCE
from mint.torch_engine.sampler import Drawn, Draws, draw
from mint.torch_engine.sequences import Sequence
from mint.torch_engine.uniforms import uniforms

Taken = Iterator[tuple[Row[Sequence], Drawn]]
"""Rows together, and what was drawn for them."""


def draw_first(decoder: Decoder, rows: Row[Sequence]) -> Taken:
    """The first token of every sequence, from its prompt's last hidden state. The logits of a
    prompt are computed once, however many sequences continue it; its sequences lie side by side."""
    for some in _few(decoder, rows):
        number = {p: n for n, p in enumerate(dict.fromkeys(s.prompt for s in some))}
        hidden_PE = torch.stack([p.last_hidden_E for p in number if p.last_hidden_E is not None])
        logits_PV = decoder.logits(hidden_PE, [(p.weights, 1) for p in number])
        if len(number) == len(some):
            yield some, _draw(logits_PV, some)
            continue
        prompt_B = torch.tensor([number[s.prompt] for s in some], device=decoder.device)
        yield some, _draw(logits_PV.index_select(0, prompt_B), some)


def draw_next(decoder: Decoder, hidden_BE: Tensor, rows: Row[Sequence]) -> Taken:
    """The next token of every sequence, from its last hidden state."""
    at = 0
    for some in _few(decoder, rows):
        hidden = hidden_BE[at : at + len(some)]
        at += len(some)
        yield some, _draw(decoder.logits(hidden, [(s.prompt.weights, 1) for s in some]), some)


def _few(decoder: Decoder, rows: Row[Sequence]) -> Iterator[Row[Sequence]]:
    step = max(1, LOGITS_AT_ONCE // decoder.vocab_size)
    return (rows[at : at + step] for at in range(0, len(rows), step))


def _draw(logits_BV: Tensor, rows: Row[Sequence]) -> Drawn:
    device = logits_BV.device
    if device.type == "mps":
        device = torch.device("cpu")  # MPS has no float64, which drawing needs
    numbers_B = uniforms(
        np.array([s.stream for s in rows], dtype=np.uint64),
        np.array([len(s.tokens) for s in rows], dtype=np.uint64),
    )
    draws = Draws.of([s.request.sample.params for s in rows], numbers_B, device)
    best = max(s.request.sample.topk_sample_logprobs for s in rows)
    return draw(logits_BV.to(device), draws, best)
