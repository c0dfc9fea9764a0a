"""Pages of keys and values: a pool for each layer, and who holds which page.

Shapes: L layers, P pages, S tokens of a page, K key heads, D head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mint.torch_engine.kv_store import KvShape


@dataclass(eq=False)
class Page:
    """Room for some tokens' keys and values, of all layers."""

    index: int
    """Where it lies in each pool. It changes when the pools are trimmed."""
    holders: int = 1
    """Texts that it is part of, and the cache."""


class PagePool:
    """Pages, made as they are needed, up to a number of them.

    Attributes:
        size: tokens of a page.
        most: how many pages there may be.
        k_PSKD, v_PSKD: a layer's keys and values each.
    """

    def __init__(self, shape: KvShape, size: int, most: int) -> None:
        self._shape = shape
        self.size, self.most = size, most
        self._pages: dict[int, Page] = {}
        """Those that somebody holds, by index."""
        self._unused: list[int] = []
        self._made = 0
        """Pages that every layer's tensors have."""
        self.k_PSKD = [self._empty(0) for _ in range(shape.layers)]
        self.v_PSKD = [self._empty(0) for _ in range(shape.layers)]

    @property
    def held(self) -> int:
        return len(self._pages)

    @property
    def free(self) -> int:
        """How many more may be held."""
        return self.most - self.held

    @property
    def nbytes(self) -> int:
        return sum(pool.nbytes for pool in (*self.k_PSKD, *self.v_PSKD))

    @property
    def page_bytes(self) -> int:
        s = self._shape
        return 2 * s.layers * self.size * s.kv_heads * s.head_dim * s.dtype.itemsize

    # ------------------------------------------------------------------- holding

    def take(self, count: int) -> list[Page]:
        """New pages, zeroed: what is masked out must still be finite, since 0 * nan is nan. Raises
        torch's out of memory, and has then taken none."""
        assert count <= self.free
        if not count:
            return []
        self._make_room(self.held + count)
        indices = self._unused[-count:]
        at = self._on_device(indices)
        for pool in (*self.k_PSKD, *self.v_PSKD):
            pool.index_fill_(0, at, 0)
        del self._unused[-count:]
        taken = [Page(index) for index in indices]
        self._pages |= {page.index: page for page in taken}
        return taken

    def hold(self, page: Page) -> Page:
        """One more holder."""
        page.holders += 1
        return page

    def let_go(self, page: Page) -> None:
        """One holder less; without any it is free."""
        page.holders -= 1
        if page.holders:
            return
        del self._pages[page.index]
        self._unused.append(page.index)
        if not self._pages:
            self._resize(0)
            self._unused.clear()

    def copy(self, pairs: Sequence[tuple[Page, Page]]) -> None:
        """The content of the first page of each pair into the second."""
        self._copy([(source.index, target.index) for source, target in pairs])

    def trim(self) -> None:
        """Give back the memory of pages that nobody holds."""
        low = [index for index in self._unused if index < self.held]
        high = [page for index, page in self._pages.items() if index >= self.held]
        # The copies lie where nobody looks until all of them are there, whatever is raised before.
        self._copy([(page.index, target) for page, target in zip(high, low, strict=True)])
        for page, target in zip(high, low, strict=True):
            self._pages[target] = self._pages.pop(page.index)
            page.index = target
        self._unused.clear()
        self._resize(self.held)

    # ------------------------------------------------------------------- memory

    def _make_room(self, pages: int) -> None:
        have = self._made
        if pages <= have:
            return
        # By half more than there was: single pages would otherwise copy the pools each time.
        self._resize(min(self.most, max(pages, have + have // 2)))
        self._unused = [*reversed(range(have, self._made)), *self._unused]

    def _resize(self, pages: int) -> None:
        """Layer by layer, so that no more than one layer's pool is there twice. A layer that could
        not grow, or shrink, leaves the others with more than is used."""
        self._made = min(self._made, pages)
        for pools in (self.k_PSKD, self.v_PSKD):
            for layer, old in enumerate(pools):
                if len(old) != pages:
                    pools[layer] = self._empty(pages)
                    pools[layer][: self._made] = old[: self._made]
        self._made = pages

    def _copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        if not pairs:
            return
        sources, targets = (self._on_device(indices) for indices in zip(*pairs, strict=True))
        for pool in (*self.k_PSKD, *self.v_PSKD):
            pool[targets] = pool[sources]

    def _on_device(self, indices: Sequence[int]) -> Tensor:
        return torch.tensor(indices, device=self._shape.device)

    def _empty(self, pages: int) -> Tensor:
        s = self._shape
        return torch.empty(
            (pages, self.size, s.kv_heads, s.head_dim), dtype=s.dtype, device=s.device
        )
