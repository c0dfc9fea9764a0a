"""The layout in which texts lie in pages, found by a block table, for kernels that read through one.

Samples of a prompt share its whole pages, prompts share those that they begin with, and the cache
shares what has ended: nothing is copied but the part of a prompt's last page that is in use, which
each of its samples continues in a page of its own (the first one in the prompt's, which it may
write behind the prompt).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mint.core.errors import ConfigError
from mint.torch_engine.kv_pages import Page, PagePool
from mint.torch_engine.kv_store import KvShape, Piece
from mint.torch_engine.page_cache import PageCache
from mint.torch_engine.paged_attention import Attention, PagedPlan, Span
from mint.torch_engine.prefix_blocks import BlockNames, Key

log = logging.getLogger(__name__)

_FEWEST = 2
"""Pages. A text of one and a sample that copies its prompt's last one need as many."""


@dataclass(eq=False)
class PagedText:
    """A KvText.

    Attributes:
        first: position of its first token.
        pages: a prompt's from position 0 on; a continuation's from the page on in which `first`
            lies, since the whole ones before it are its prompt's.
        shared: up to this position its tokens lie in pages that others hold too, and were or will
            be written by them.
        unfinished: the prompt's last page, as long as its content is missing in this text's first.
    """

    room: int
    prompt: "PagedText | None" = None
    pages: list[Page] = field(default_factory=list)
    used: int = 0
    shared: int = 0
    unfinished: Page | None = None

    @property
    def first(self) -> int:
        return self.prompt.room if self.prompt else 0


class PagedStore:
    """A KvStore; see there. Room is counted in the pages that are held, each once."""

    def __init__(self, shape: KvShape, tokens: int, page: int, attend: Attention) -> None:
        """
        Args:
            page: tokens of a page.
            attend: how to attend through block tables.

        Raises:
            ConfigError: the budget is less than two pages.
        """
        if tokens < _FEWEST * page:
            raise ConfigError(
                f"kv_tokens={tokens}: pages of {page} tokens need a KV cache of {_FEWEST * page} "
                "at least. Give that many, or kv_layout=contiguous."
            )
        self._device = shape.device
        self._attend = attend
        self._page = page
        self._pool = PagePool(shape, page, tokens // page)
        self._cached = PageCache(self._pool)

    @property
    def names(self) -> BlockNames:
        return self._cached.names

    @property
    def tokens(self) -> int:
        return self._pool.most * self._page

    @property
    def longest(self) -> int:
        return self.tokens - self._page  # a sample may copy its prompt's last page

    @property
    def reserved(self) -> int:
        return self._pool.held * self._page

    @property
    def cached_tokens(self) -> int:
        return len(self._cached.only_here) * self._page

    @property
    def nbytes(self) -> int:
        return self._pool.nbytes

    # ------------------------------------------------------------------- texts

    def new_prompt(
        self, tokens: int, keys: Sequence[Key], *, then: int, spare: int
    ) -> PagedText | None:
        text = PagedText(tokens)
        pages = self._pages(tokens)
        text.pages = self._cached.hold(keys, 0)
        text.shared = self._page * len(text.pages)
        # The first continuation goes on in the prompt's last page.
        besides = self._pages(tokens + then) - pages + spare // self._page
        return self._with_pages(text, pages, besides)

    def new_continuation(
        self, prompt: PagedText, room: int, *, again: int = 0, keys: Sequence[Key] = (), spare: int
    ) -> PagedText | None:
        text = PagedText(room, prompt)
        before, begun = divmod(prompt.room, self._page)
        pages = self._pages(prompt.room + room) - before if room else 0
        text.pages = self._cached.hold(keys, before)
        text.shared = self._page * (before + len(text.pages))
        if begun and pages and not text.pages:
            last = prompt.pages[before]
            if last.holders == 1:  # else a sample writes behind the prompt there already
                text.pages.append(self._pool.hold(last))
            else:
                text.unfinished = last
        if not self._with_pages(text, pages, spare // self._page):
            return None
        text.room = max(0, self._page * pages - begun)
        return text

    def grow(self, text: PagedText, most: int) -> bool:
        assert text.pages, "a text without room from the start says one token, which needs none"
        if not self._cached.make_room(1):
            return False
        text.pages += self._pool.take(1)
        text.room += self._page
        return True

    def fill(self, text: PagedText, keys: Sequence[Key], stop: int) -> None:
        before = text.first // self._page
        known = max(before, text.shared // self._page)
        self._exchange(text, known, self._cached.hold(keys, known))
        text.used = max(0, min(text.shared - text.first, stop))

    def shareable(self, blocks: int, there: int) -> int:
        return self._page * min(blocks, there // self._page)

    def share(self, text: PagedText, donor: PagedText, tokens: int) -> None:
        known = text.shared // self._page
        pages = donor.pages[known : self._pages(tokens)]
        self._exchange(text, known, [self._pool.hold(page) for page in pages])

    def go_on(self, text: PagedText) -> None:
        pass  # it lies where it lay

    def close(self, text: PagedText, keys: Sequence[Key]) -> None:
        if text.used:
            whole = (text.first + text.used) // self._page
            self._cached.put(keys[:whole], self._table(text)[:whole])
        self._release(text)

    def _exchange(self, text: PagedText, number: int, pages: Sequence[Page]) -> None:
        """Others' pages of the same content in place of a text's own, from page `number` of prompt
        and continuation on."""
        if not pages:
            return
        at = number - text.first // self._page
        for page in text.pages[at : at + len(pages)]:
            self._pool.let_go(page)
        text.pages[at : at + len(pages)] = pages
        text.shared = self._page * (number + len(pages))
        if not at:
            text.unfinished = None

    def _with_pages(self, text: PagedText, pages: int, besides: int) -> PagedText | None:
        """The text with so many pages, if there is room for them and more besides; else it has
        none."""
        new = pages - len(text.pages)
        try:
            if self._cached.make_room(new + besides):
                text.pages += self._pool.take(new)
                return text
        except Exception:
            self._release(text)
            raise
        self._release(text)
        return None

    def _release(self, text: PagedText) -> None:
        for page in text.pages:
            self._pool.let_go(page)
        text.pages = []
        text.unfinished = None
        text.used = text.room = 0

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self._page)

    def _table(self, text: PagedText) -> list[Page]:
        """All pages of a prompt, or of a prompt and what follows it."""
        if not text.prompt:
            return text.pages
        return text.prompt.pages[: text.first // self._page] + text.pages

    # ------------------------------------------------------------------- plans

    def prefill_plan(self, pieces: Sequence[Piece[PagedText]]) -> PagedPlan:
        return self._plan([(piece.text, piece.start, piece.stop) for piece in pieces])

    def decode_plan(self, texts: Sequence[PagedText]) -> PagedPlan:
        return self._plan([(text, text.used, text.used + 1) for text in texts])

    def _plan(self, parts: Sequence[tuple[PagedText, int, int]]) -> PagedPlan:
        self._finish([text for text, _, _ in parts])
        spans = [
            Span(
                [page.index for page in self._table(text)],
                text.first + start,
                text.first + stop,
                text.shared,
            )
            for text, start, stop in parts
        ]
        return PagedPlan(self._pool, spans, self._attend, self._device)

    def _finish(self, texts: Sequence[PagedText]) -> None:
        """Copy what is missing in first pages."""
        missing = [text for text in texts if text.unfinished]
        pairs = [(text.unfinished, text.pages[0]) for text in missing if text.unfinished]
        self._pool.copy(pairs)
        for text in missing:
            text.unfinished = None

    # ------------------------------------------------------- what is kept for later

    def give_up(self, size_bytes: int) -> None:
        self._forget(lambda: self._cached.give_up(size_bytes))

    def clear(self) -> None:
        self._forget(self._cached.clear)

    def _forget(self, drop: Callable[[], None]) -> None:
        drop()
        try:
            self._pool.trim()
        except (RuntimeError, MemoryError):
            log.warning("no memory to make the pools of keys and values smaller")
