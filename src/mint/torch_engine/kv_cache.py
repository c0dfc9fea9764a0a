"""Places for prompts and continuations, each in one piece, and how many there may be.

Places of one length lie side by side on a shelf, so that attention over all of them is one batched
product over whole places and a mask; slicing a cache along time is several times slower in bf16
(engine.md). A prompt lies once, whatever the number of sequences that continue it.

Shapes: L layers, N places, K key heads, S tokens of a place, D head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mint.torch_engine.kv_store import KvShape


def place_length(tokens: int) -> int:
    """The length of the place that holds `tokens`: 16, 24, 32, 48, 64, 96, ... so that at most a
    third of it is empty and few different lengths are in use at a time."""
    length = 16
    while length < tokens:
        if length + length // 2 >= tokens:
            return length + length // 2
        length *= 2
    return length


@dataclass(eq=False)
class Place:
    """Room for the keys and values of one prompt or one continuation."""

    shelf: "Shelf"
    slot: int
    used: int = 0
    """Tokens written so far."""

    @property
    def content(self) -> tuple[Tensor, Tensor]:
        """Its keys and its values, both `[L, K, S, D]`; views."""
        return self.shelf.k_LNKSD[:, self.slot], self.shelf.v_LNKSD[:, self.slot]


class Shelf:
    """Places of one length. Those in use always fill the first slots."""

    def __init__(self, shape: KvShape, length: int) -> None:
        self._shape = shape
        self.length = length
        self.places: list[Place] = []
        self.k_LNKSD = self._empty(0)
        self.v_LNKSD = self._empty(0)

    @property
    def nbytes(self) -> int:
        return 2 * self.k_LNKSD.numel() * self.k_LNKSD.element_size()

    def take(self, count: int) -> list[Place]:
        """New places, zeroed: what is masked out must still be finite, since 0 * nan is nan."""
        first = len(self.places)
        self._make_room(first + count)
        taken = [Place(self, first + i) for i in range(count)]
        self.places += taken
        self.k_LNKSD[:, first : first + count].zero_()
        self.v_LNKSD[:, first : first + count].zero_()
        return taken

    def give_back(self, place: Place) -> None:
        """The last place moves into the hole, so that those in use stay together."""
        assert self.places[place.slot] is place
        last = self.places.pop()
        if last is not place:
            self.k_LNKSD[:, place.slot] = self.k_LNKSD[:, last.slot]
            self.v_LNKSD[:, place.slot] = self.v_LNKSD[:, last.slot]
            last.slot = place.slot
            self.places[last.slot] = last
        if not self.places:
            self.k_LNKSD, self.v_LNKSD = self._empty(0), self._empty(0)

    def _make_room(self, places: int) -> None:
        have = self.k_LNKSD.shape[1]
        if places <= have:
            return
        # By a quarter more than asked: single arrivals would otherwise copy the shelf each time.
        k, v = self._empty(places + have // 4), self._empty(places + have // 4)
        used = len(self.places)
        k[:, :used] = self.k_LNKSD[:, :used]
        v[:, :used] = self.v_LNKSD[:, :used]
        self.k_LNKSD, self.v_LNKSD = k, v

    def _empty(self, places: int) -> Tensor:
        s = self._shape
        return torch.empty(
            (s.layers, places, s.kv_heads, self.length, s.head_dim), dtype=s.dtype, device=s.device
        )


class KvCache:
    """All places, and the budget of tokens they are reserved against.

    Rounding up to a place's length is not counted: memory can exceed the budget by up to a half.
    """

    def __init__(self, shape: KvShape, tokens: int) -> None:
        self._shape = shape
        self.tokens = tokens
        self.reserved = 0
        self.prompts: dict[int, Shelf] = {}
        """Shelves by length; also `suffixes`, for what was sampled after a prompt."""
        self.suffixes: dict[int, Shelf] = {}

    @property
    def nbytes(self) -> int:
        shelves = [*self.prompts.values(), *self.suffixes.values()]
        return sum(shelf.nbytes for shelf in shelves)

    @property
    def free(self) -> int:
        """Tokens that are not set aside."""
        return self.tokens - self.reserved

    def reserve(self, tokens: int) -> bool:
        """Set `tokens` aside; False and nothing done if they do not fit."""
        if tokens > self.free:
            return False
        self.reserved += tokens
        return True

    def release(self, tokens: int) -> None:
        self.reserved -= tokens
        assert self.reserved >= 0

    def new_prompt(self, tokens: int) -> Place:
        """A place for a text to be prefilled."""
        (place,) = self._shelf(self.prompts, place_length(tokens)).take(1)
        return place

    def new_suffixes(self, count: int) -> list[Place]:
        """Places for continuations, of the shortest length; see `lengthen`."""
        return self._shelf(self.suffixes, place_length(1)).take(count)

    def lengthen(self, places: Sequence[Place]) -> list[Place]:
        """Longer places with the same content for continuations that fill theirs, all from one
        shelf; the old places are given back. If memory runs out they stay as they are."""
        old = places[0].shelf
        new = self._shelf(self.suffixes, place_length(old.length + 1)).take(len(places))
        shelf = new[0].shelf
        try:
            sources = torch.tensor([place.slot for place in places], device=self._shape.device)
            targets = torch.tensor([place.slot for place in new], device=self._shape.device)
            shelf.k_LNKSD[:, targets, :, : old.length] = old.k_LNKSD[:, sources]
            shelf.v_LNKSD[:, targets, :, : old.length] = old.v_LNKSD[:, sources]
        except Exception:
            # A place that no sequence has would be missed by every later step of this shelf.
            for place in reversed(new):
                self.give_back(place)
            raise
        for before, after in zip(places, new, strict=True):
            after.used = before.used
        for place in places:
            self.give_back(place)
        return new

    def as_suffix(self, place: Place) -> Place:
        """The content of a prompt's place in that of a continuation; the old one is given back."""
        (new,) = self._shelf(self.suffixes, place.shelf.length).take(1)
        for after, before in zip(new.content, place.content, strict=True):
            after[:] = before
        new.used = place.used
        self.give_back(place)
        return new

    def new_block(self, tokens: int) -> Tensor:
        """Room outside of any place, `[2, L, K, tokens, D]`: keys, then values."""
        s = self._shape
        return torch.empty(
            (2, s.layers, s.kv_heads, tokens, s.head_dim), dtype=s.dtype, device=s.device
        )

    def block_bytes(self, tokens: int) -> int:
        s = self._shape
        return 2 * s.layers * s.kv_heads * tokens * s.head_dim * s.dtype.itemsize

    def give_back(self, place: Place) -> None:
        place.shelf.give_back(place)

    def _shelf(self, shelves: dict[int, Shelf], length: int) -> Shelf:
        if length not in shelves:
            shelves[length] = Shelf(self._shape, length)
        return shelves[length]
