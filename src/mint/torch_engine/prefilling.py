"""The keys and values of prompts, and of continuations that were set back: what a slice computes.

Nothing is computed that is there already: a text begins with what the prefix cache has of it, or
with what another prompt has that begins alike, be it one of the same slice.

Shapes: T packed tokens, E model width.
"""

from collections.abc import Sequence as Row
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mint.core.model_input import Tokens
from mint.torch_engine.admission import Admission
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.kv_attention import Piece, PrefillPlan
from mint.torch_engine.prefix_cache import BLOCK, PrefixCache
from mint.torch_engine.sequences import Prompt, Sequence


@dataclass(frozen=True, eq=False)
class Stretch:
    """The next tokens of one prompt, or of what a sequence has sampled after it."""

    of: Prompt | Sequence
    piece: Piece
    tokens: Tokens
    positions: NDArray[np.int64]

    @property
    def prompt(self) -> Prompt:
        return self.of if isinstance(self.of, Prompt) else self.of.prompt


def next_stretches(admission: Admission, cache: PrefixCache, tokens: int) -> list[Stretch]:
    """At most `tokens` to compute: first for those who ran before, then prompts in order of
    arrival; put together by adapter."""
    found: list[Stretch] = []
    left = tokens
    for sequence in admission.resuming:
        if left and sequence.prompt.is_filled and (stretch := _again(sequence, cache, left)):
            found.append(stretch)
            left -= len(stretch.tokens)
    planned: dict[Prompt, int] = {}
    for prompt in admission.prefilling:
        if not left:
            break
        stretch = _next(prompt, admission, cache, planned, left)
        planned[prompt] = stretch.piece.stop
        found.append(stretch)
        left -= len(stretch.tokens)
    order = {id(s.prompt.weights): n for n, s in reversed([*enumerate(found)])}
    return sorted(found, key=lambda s: order[id(s.prompt.weights)])


def _again(sequence: Sequence, cache: PrefixCache, left: int) -> Stretch | None:
    """The next tokens of a sequence that was set back; its last is for the decode step."""
    place, before = sequence.place, len(sequence.prompt.tokens)
    if place is None:
        return None
    last = len(sequence.tokens) - 1
    if not place.used:
        cache.fill(place, before, sequence.keys, before + last)
    start, stop = place.used, min(last, place.used + left)
    if start == stop:
        return None
    return Stretch(
        sequence,
        Piece(place, start, stop, prompt=sequence.prompt.place),
        np.array(sequence.tokens[start:stop], dtype=np.int32),
        np.arange(before + start, before + stop),
    )


def _next(
    prompt: Prompt,
    admission: Admission,
    cache: PrefixCache,
    planned: dict[Prompt, int],
    left: int,
) -> Stretch:
    """The next tokens of a prompt. `planned`: how far others will be with this slice."""
    place = prompt.place
    assert place is not None
    start, donor = place.used, None
    if not start:
        cache.fill(place, 0, prompt.keys, prompt.reusable)
        start, donor = _longest_shared(prompt, admission, planned)
        admission.note_reused(start)
    stop = min(len(prompt.tokens), start + left)
    return Stretch(
        prompt,
        Piece(place, start, stop, donor=donor.place if donor else None),
        prompt.tokens[start:stop],
        np.arange(start, stop),
    )


def _longest_shared(
    prompt: Prompt, admission: Admission, planned: dict[Prompt, int]
) -> tuple[int, Prompt | None]:
    """How many first tokens `prompt` need not compute, and whose place has those that its own
    lacks."""
    assert prompt.place is not None
    most, donor = prompt.place.used, None
    for other in admission.placed():
        there = planned.get(other) or (other.place.used if other.place else 0)
        shared = min(BLOCK * _common(prompt.keys, other.keys), there, prompt.reusable)
        if shared > most:
            most, donor = shared, other
    return most, donor


def _common(a: Row[bytes], b: Row[bytes]) -> int:
    """How many first names are the same."""
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def prefill(decoder: Decoder, stretches: Row[Stretch]) -> list[Prompt]:
    """Compute a slice. Returns the prompts that are complete with it, whose sequences may draw
    their first tokens."""
    tokens = np.concatenate([s.tokens for s in stretches]).astype(np.int64)
    positions = np.concatenate([s.positions for s in stretches])
    hidden_TE = decoder.hidden(
        torch.from_numpy(tokens).to(decoder.device),
        torch.from_numpy(positions).to(decoder.device),
        PrefillPlan([s.piece for s in stretches], decoder.device),
        [(s.prompt.weights, len(s.tokens)) for s in stretches],
    )
    complete: list[Prompt] = []
    at = 0
    for stretch in stretches:
        mine_TE = hidden_TE[at : at + len(stretch.tokens)]
        at += len(mine_TE)
        stretch.piece.place.used = stretch.piece.stop
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
