"""Copies of keys and values of texts that have ended, for prompts that begin as they did.

A cached block is never in the way: it counts against the same budget as live keys and values, and
leaves as soon as those need its room. What matches is copied to the new prompt's own place, since
decoding reads whole places that lie side by side: 46 kB a token for a model of 135 M parameters,
some hundredths of what computing them takes.

Shapes: L layers, K key heads, S tokens of a place or block, D head width.
"""

import logging
import math
from collections.abc import Sequence

from torch import Tensor

from mint.torch_engine.kv_cache import KvCache, Place
from mint.torch_engine.prefix_blocks import Key, PrefixBlocks

log = logging.getLogger(__name__)

BLOCK = 16
"""Tokens of a block. A shorter one finds a few more tokens of a prefix and costs a copy of its own;
8 tokens are a few milliseconds of compute."""


class PrefixCache(PrefixBlocks[Tensor]):
    """Copied blocks, `[2, L, K, BLOCK, D]` each."""

    def __init__(self, kv: KvCache) -> None:
        super().__init__(BLOCK)
        self._kv = kv

    @property
    def tokens(self) -> int:
        """What cached blocks take of the budget."""
        self._drop_dead()
        return BLOCK * len(self._blocks)

    @property
    def nbytes(self) -> int:
        self._drop_dead()
        return len(self._blocks) * self._kv.block_bytes(BLOCK)

    # ------------------------------------------------------------------- room

    def reserve(self, tokens: int) -> bool:
        """Set `tokens` of the budget aside for live keys and values, at the cost of as many cached
        ones as that takes; False and nothing done if even all would not do."""
        self._drop_dead()
        if self._kv.free + self.tokens < tokens:
            return False
        while not self._kv.reserve(tokens):
            self._drop(next(iter(self._blocks)))
        return True

    def give_up(self, size_bytes: int) -> None:
        """Forget so much, or all if there is less, for whoever needs the memory."""
        self._drop_dead()
        blocks = math.ceil(size_bytes / self._kv.block_bytes(BLOCK))
        for _ in range(min(blocks, len(self._blocks))):
            self._drop(next(iter(self._blocks)))

    def _let_go(self, block: Tensor) -> None:
        self._kv.release(BLOCK)

    # ------------------------------------------------------------------- content

    def put(self, keys: Sequence[Key], parts: Sequence[tuple[Place, int]]) -> None:
        """Keep the blocks of a text, from its beginning on, as far as there is room.

        Never raises for want of memory: those who put something here are on their way out.

        Args:
            parts: places that hold the text, each with the position of its first token there.
        """
        self._drop_dead()
        held = self.refresh(keys)
        kept = {*keys[:held]}
        try:
            for key in keys[held:]:
                block_2LKSD = self._copied(len(kept) * BLOCK, parts)
                if not self._room_for_one(kept):
                    break
                self._blocks[key] = block_2LKSD
                kept.add(key)
        except (RuntimeError, MemoryError):
            log.warning("no memory to cache a prefix; %d cached tokens are forgotten", self.tokens)
            self.clear()
            return
        self._touch(keys[: len(kept)])

    def fill(self, place: Place, first: int, keys: Sequence[Key], stop: int) -> None:
        """Copy what is cached of a text into a place, after the tokens that it has already.

        Args:
            first: position in the text of the place's first token.
            stop: position up to which to copy at most.
        """
        held = self._held(keys)
        for i in range((first + place.used) // BLOCK, held):
            start, end = first + place.used, min((i + 1) * BLOCK, stop)
            if start >= end:
                return
            block_2LKSD = self._blocks[keys[i]][:, :, :, start - i * BLOCK : end - i * BLOCK]
            for own_LKSD, cached_LKSD in zip(place.content, block_2LKSD, strict=True):
                own_LKSD[:, :, start - first : end - first] = cached_LKSD
            place.used += end - start

    def _room_for_one(self, kept: set[Key]) -> bool:
        """Room for one more block, if need be in place of another, but not of one of `kept`."""
        if self._kv.reserve(BLOCK):
            return True
        oldest = next(iter(self._blocks), None)
        if oldest is None or oldest in kept:
            return False
        self._drop(oldest)
        return self._kv.reserve(BLOCK)

    def _copied(self, at: int, parts: Sequence[tuple[Place, int]]) -> Tensor:
        block_2LKSD = self._kv.new_block(BLOCK)
        for place, first in parts:
            start, stop = max(at, first), min(at + BLOCK, first + place.used)
            if start >= stop:
                continue
            for cached_LKSD, own_LKSD in zip(block_2LKSD, place.content, strict=True):
                cached_LKSD[:, :, start - at : stop - at] = own_LKSD[
                    :, :, start - first : stop - first
                ]
        return block_2LKSD
