"""Whole pages of texts that have ended, for prompts that begin as they did: no copies, one more
holder of the same page.
"""

import math
from collections.abc import Sequence
from itertools import islice

from mint.torch_engine.kv_pages import Page, PagePool
from mint.torch_engine.prefix_blocks import Key, PrefixBlocks


class PageCache(PrefixBlocks[Page]):
    """Pages by name. A page that a text holds as well costs nothing; one that nobody else holds
    leaves when its room is needed."""

    def __init__(self, pool: PagePool) -> None:
        super().__init__(pool.size)
        self._pool = pool

    @property
    def only_here(self) -> list[Key]:
        """Names of the pages that nobody else holds, least recently used first."""
        self._drop_dead()
        return [key for key, page in self._blocks.items() if page.holders == 1]

    def make_room(self, pages: int) -> bool:
        """So many pages free, at the cost of as many cached ones as that takes; False and nothing
        done if even all would not do."""
        self._drop_dead()
        short = pages - self._pool.free
        if short > 0:
            leaving = list(islice(self.only_here, short))
            if len(leaving) < short:
                return False
            for key in leaving:
                self._drop(key)
        return True

    def put(self, keys: Sequence[Key], pages: Sequence[Page]) -> None:
        """Keep pages of a text, from its beginning on."""
        self._drop_dead()
        for key, page in zip(keys, pages, strict=True):
            if key not in self._blocks:
                self._blocks[key] = self._pool.hold(page)
        self._touch(keys)

    def hold(self, keys: Sequence[Key], first: int) -> list[Page]:
        """What is here of a text from its page `first` on, with one more holder."""
        self._drop_dead()
        held = self.refresh(keys)
        return [self._pool.hold(self._blocks[key]) for key in keys[first:held]]

    def give_up(self, size_bytes: int) -> None:
        """Drop pages until so much less memory is enough for those that are left, or none is."""
        spared = math.ceil(size_bytes / self._pool.page_bytes)
        held = self._pool.nbytes // self._pool.page_bytes - spared
        for key in self.only_here:
            if self._pool.held <= held:
                return
            self._drop(key)

    def _let_go(self, block: Page) -> None:
        self._pool.let_go(block)
