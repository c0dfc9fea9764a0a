"""The keys and values of prompts, and of continuations that were set back: what a slice computes.

Nothing is computed that is there already: a text begins with what the prefix cache has of it, or
with what another prompt has that begins alike, be it one of the same slice.

Shapes: T packed tokens, E model width.
"""

from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mint.core.model_input import Tokens
from mint.torch_engine.admission import Admission
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.kv_store import KvStore, KvText, Piece
from mint.torch_engine.sequences import Prompt, Sequence


@dataclass(frozen=True, eq=False)
class Stretch:
    """The next tokens of one prompt, or of what a sequence has sampled after it."""

    of: Prompt | Sequence
    piece: Piece[KvText]
    tokens: Tokens
    positions: NDArray[np.int64]

    @property
    def prompt(self) -> Prompt:
        return self.of if isinstance(self.of, Prompt) else self.of.prompt


def next_stretches(admission: Admission, kv: KvStore[Any], tokens: int) -> list[Stretch]:
    """At most `tokens` to compute: first for those who ran before, then prompts in order of
    arrival; put together by adapter."""
    found: list[Stretch] = []
    left = tokens
    for sequence in admission.resuming:
        if left and sequence.prompt.is_filled and (stretch := _again(sequence, kv, left)):
            found.append(stretch)
            left -= len(stretch.tokens)
    planned: dict[Prompt, int] = {}
    for prompt in admission.prefilling:
        if not left:
            break
        stretch = _next(prompt, admission, kv, planned, left)
        planned[prompt] = stretch.piece.stop
        found.append(stretch)
        left -= len(stretch.tokens)
    order = {id(s.prompt.weights): n for n, s in reversed([*enumerate(found)])}
    return sorted(found, key=lambda s: order[id(s.prompt.weights)])


def _again(sequence: Sequence, kv: KvStore[Any], left: int) -> Stretch | None:
    """The next tokens of a sequence that was set back; its last is for the decode step."""
    text, before = sequence.kv, len(sequence.prompt.tokens)
    last = len(sequence.tokens) - 1
    if text is None or text.used == last:
        return None
    if not text.used:
        kv.fill(text, sequence.keys, last)
    start, stop = text.used, min(last, text.used + left)
    if start == stop:
        return None
    return Stretch(
        sequence,
        Piece(text, start, stop),
        np.array(sequence.tokens[start:stop], dtype=np.int32),
        np.arange(before + start, before + stop),
    )


def _next(
    prompt: Prompt,
    admission: Admission,
    kv: KvStore[Any],
    planned: dict[Prompt, int],
    left: int,
) -> Stretch:
    """The next tokens of a prompt. `planned`: how far others will be with this slice."""
    text = prompt.kv
    assert text is not None
    start, donor = text.used, None
    if not start:
        kv.fill(text, prompt.keys, prompt.reusable)
        start, other = _longest_shared(prompt, admission, kv, planned)
        if other:
            donor = kv.share(text, other, start)
        admission.note_reused(start)
    stop = min(len(prompt.tokens), start + left)
    return Stretch(
        prompt,
        Piece(text, start, stop, donor),
        prompt.tokens[start:stop],
        np.arange(start, stop),
    )


def _longest_shared(
    prompt: Prompt, admission: Admission, kv: KvStore[Any], planned: dict[Prompt, int]
) -> tuple[int, KvText | None]:
    """How many first tokens `prompt` need not compute, and who has those that its own text
    lacks."""
    assert prompt.kv is not None
    most, donor = prompt.kv.used, None
    for other in admission.placed():
        there = planned.get(other) or (other.kv.used if other.kv else 0)
        shared = min(kv.shareable(_common(prompt.keys, other.keys), there), prompt.reusable)
        if shared > most:
            most, donor = shared, other.kv
    return most, donor


def _common(a: Row[bytes], b: Row[bytes]) -> int:
    """How many first names are the same."""
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def prefill(decoder: Decoder, kv: KvStore[Any], stretches: Row[Stretch]) -> list[Prompt]:
    """Compute a slice. Returns the prompts that are complete with it, whose sequences may draw
    their first tokens."""
    tokens = np.concatenate([s.tokens for s in stretches]).astype(np.int64)
    positions = np.concatenate([s.positions for s in stretches])
    hidden_TE = decoder.hidden(
        torch.from_numpy(tokens).to(decoder.device),
        torch.from_numpy(positions).to(decoder.device),
        kv.prefill_plan([s.piece for s in stretches]),
        [(s.prompt.weights, len(s.tokens)) for s in stretches],
    )
    complete: list[Prompt] = []
    at = 0
    for stretch in stretches:
        mine_TE = hidden_TE[at : at + len(stretch.tokens)]
        at += len(mine_TE)
        stretch.piece.text.used = stretch.piece.stop
        prompt = stretch.of
        if not isinstance(prompt, Prompt):
            continue
        if prompt.scores:
            prompt.scores.add(decoder, prompt.weights, mine_TE, stretch.piece.start)
        if prompt.is_filled:
            prompt.last_hidden_E = mine_TE[-1].clone()  # not a view that keeps them all
            prompt.scores = None
            complete.append(prompt)
    return complete
