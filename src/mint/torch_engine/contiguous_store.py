"""The layout in which every text lies in one piece: quickest on a CPU, where attention over whole
places is one batched product. A prefix that is known is copied to where its prompt lies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mint.torch_engine.kv_attention import DecodePlan, PlacedPiece, PrefillPlan
from mint.torch_engine.kv_cache import KvCache, Place, place_length
from mint.torch_engine.kv_store import KvShape, Piece
from mint.torch_engine.prefix_blocks import BlockNames, Key
from mint.torch_engine.prefix_cache import BLOCK, PrefixCache


@dataclass(eq=False)
class ContiguousText:
    """A KvText. `place` is None until there is something to write."""

    room: int
    prompt: "ContiguousText | None" = None
    """What a continuation follows."""
    place: Place | None = None

    @property
    def used(self) -> int:
        return self.place.used if self.place else 0

    @used.setter
    def used(self, tokens: int) -> None:
        assert self.place
        self.place.used = tokens

    @property
    def first(self) -> int:
        """Position of its first token."""
        return self.prompt.room if self.prompt else 0

    @property
    def parts(self) -> list[tuple[Place, int]]:
        """Where prompt and continuation lie, each with the position of its first token."""
        texts = (self.prompt, self) if self.prompt else (self,)
        return [(text.place, text.first) for text in texts if text.place]


class ContiguousStore:
    """A KvStore; see there. Room is counted in the tokens that are asked for."""

    def __init__(self, shape: KvShape, tokens: int) -> None:
        self._device = shape.device
        self._kv = KvCache(shape, tokens)
        self._cached = PrefixCache(self._kv)

    @property
    def names(self) -> BlockNames:
        return self._cached.names

    @property
    def tokens(self) -> int:
        return self._kv.tokens

    @property
    def longest(self) -> int:
        return self._kv.tokens

    @property
    def reserved(self) -> int:
        return self._kv.reserved

    @property
    def cached_tokens(self) -> int:
        return self._cached.tokens

    @property
    def nbytes(self) -> int:
        return self._kv.nbytes + self._cached.nbytes

    # ------------------------------------------------------------------- texts

    def new_prompt(
        self, tokens: int, keys: Sequence[Key], *, then: int, spare: int
    ) -> ContiguousText | None:
        self._cached.refresh(keys)
        if not self._reserve(tokens, then + spare):
            return None
        return self._with_place(ContiguousText(tokens), tokens)

    def new_continuation(
        self,
        prompt: ContiguousText,
        room: int,
        *,
        again: int = 0,
        keys: Sequence[Key] = (),
        spare: int,
    ) -> ContiguousText | None:
        self._cached.refresh(keys)
        if not self._reserve(room, spare):
            return None
        # One that is computed again lies with the prompts meanwhile, since a decode step reads all
        # places that continuations have; see `go_on`.
        return self._with_place(ContiguousText(room, prompt), again)

    def grow(self, text: ContiguousText, most: int) -> bool:
        longer = min(place_length(text.room + 1), most)
        if not self._cached.reserve(longer - text.room):
            return False
        text.room = longer
        return True

    def fill(self, text: ContiguousText, keys: Sequence[Key], stop: int) -> None:
        assert text.place
        self._cached.fill(text.place, text.first, keys, text.first + stop)

    def shareable(self, blocks: int, there: int) -> int:
        return min(BLOCK * blocks, there)

    def share(self, text: ContiguousText, donor: ContiguousText, tokens: int) -> ContiguousText:
        return donor

    def go_on(self, text: ContiguousText) -> None:
        if text.place:
            text.place = self._kv.as_suffix(text.place)

    def close(self, text: ContiguousText, keys: Sequence[Key]) -> None:
        self._kv.release(text.room)
        text.room = 0
        if text.place:
            if text.used:
                self._cached.put(keys[: (text.first + text.used) // BLOCK], text.parts)
            self._kv.give_back(text.place)
            text.place = None

    def _reserve(self, tokens: int, spare: int) -> bool:
        """Take `tokens` of the budget if `spare` more are free."""
        if not self._cached.reserve(tokens + spare):
            return False
        self._kv.release(spare)
        return True

    def _with_place(self, text: ContiguousText, tokens: int) -> ContiguousText:
        if tokens:
            try:
                text.place = self._kv.new_prompt(tokens)
            except Exception:
                self._kv.release(text.room)
                raise
        return text

    # ------------------------------------------------------------------- plans

    def prefill_plan(self, pieces: Sequence[Piece[ContiguousText]]) -> PrefillPlan:
        return PrefillPlan([_placed(piece) for piece in pieces], self._device)

    def decode_plan(self, texts: Sequence[ContiguousText]) -> DecodePlan:
        self._make_room(texts)
        prompts = [text.prompt for text in texts if text.prompt]
        return DecodePlan(_places(prompts), _places(texts), self._device)

    def _make_room(self, texts: Sequence[ContiguousText]) -> None:
        """A place with room for one more token for every text."""
        new = [text for text in texts if text.place is None]
        if new:
            for text, place in zip(new, self._kv.new_suffixes(len(new)), strict=True):
                text.place = place
        full: dict[int, list[ContiguousText]] = {}
        for text in texts:
            if text.place and text.place.used == text.place.shelf.length:
                full.setdefault(text.place.used, []).append(text)
        for together in full.values():
            longer = self._kv.lengthen(_places(together))
            for text, place in zip(together, longer, strict=True):
                text.place = place

    # ------------------------------------------------------- what is kept for later

    def give_up(self, size_bytes: int) -> None:
        self._cached.give_up(size_bytes)

    def clear(self) -> None:
        self._cached.clear()


def _places(texts: Sequence[ContiguousText]) -> list[Place]:
    return [text.place for text in texts if text.place]


def _placed(piece: Piece[ContiguousText]) -> PlacedPiece:
    text, donor = piece.text, piece.donor
    assert text.place
    return PlacedPiece(
        text.place, piece.start, piece.stop,
        donor=donor.place if donor else None,
        prompt=text.prompt.place if text.prompt else None,
    )  # fmt: skip
