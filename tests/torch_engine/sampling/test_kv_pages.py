"""The pools of pages: who holds what, and how much memory that takes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from mint.torch_engine.kv_pages import Page, PagePool
from mint.torch_engine.kv_store import KvShape

SHAPE = KvShape(layers=2, kv_heads=1, head_dim=3, dtype=torch.float32, device=torch.device("cpu"))
PAGE_BYTES = 2 * 2 * 4 * 1 * 3 * 4


@pytest.fixture
def pool() -> PagePool:
    return PagePool(SHAPE, size=4, most=10)


def write(pool: PagePool, page: Page, value: float) -> None:
    for n, tensor in enumerate((*pool.k_PSKD, *pool.v_PSKD)):
        tensor[page.index] = value + n / 10  # each layer's keys and values differ


def holds(pool: PagePool, page: Page) -> float:
    """The value that was written."""
    first = pool.k_PSKD[0][page.index].flatten()[0].item()
    for n, tensor in enumerate((*pool.k_PSKD, *pool.v_PSKD)):
        assert torch.equal(tensor[page.index], torch.full((4, 1, 3), first + n / 10))
    return first


@contextmanager
def full(fails_at: int) -> Iterator[None]:
    """The so-and-so-many-th pool that is made finds no memory."""
    made, empty = 0, PagePool._empty

    def counted(pool: PagePool, count: int) -> torch.Tensor:
        nonlocal made
        made += 1
        if made == fails_at:
            raise RuntimeError("not enough memory: you tried to allocate 1 GB.")
        return empty(pool, count)

    with pytest.MonkeyPatch.context() as memory:
        memory.setattr(PagePool, "_empty", counted)
        yield


def test_a_page_is_free_when_its_last_holder_let_it_go(pool: PagePool):
    (page,) = pool.take(1)
    pool.hold(page)

    pool.let_go(page)
    assert (pool.held, pool.free) == (1, 9)
    pool.let_go(page)
    assert (pool.held, pool.free) == (0, 10)


def test_a_page_that_is_used_again_has_nothing_of_what_it_held(pool: PagePool):
    """Not even a number that is none: 0 * nan would reach whoever masks it out."""
    kept, gone = pool.take(2)
    write(pool, kept, 1)
    write(pool, gone, float("nan"))
    pool.let_go(gone)

    (again,) = pool.take(1)

    assert again.index == gone.index
    assert all((t[again.index] == 0).all() for t in (*pool.k_PSKD, *pool.v_PSKD))
    assert holds(pool, kept) == 1


def test_pools_grow_and_keep_what_they_hold(pool: PagePool):
    pages: list[Page] = []
    for value in range(10):
        (page,) = pool.take(1)
        write(pool, page, value)
        pages.append(page)

    assert [holds(pool, page) for page in pages] == list(range(10))
    assert sorted(page.index for page in pages) == list(range(10))
    assert pool.nbytes == 10 * PAGE_BYTES == 10 * pool.page_bytes  # never more than allowed


def test_memory_is_given_back_with_the_last_page(pool: PagePool):
    for page in pool.take(7):
        pool.let_go(page)

    assert (pool.nbytes, pool.held) == (0, 0)
    assert len(pool.take(10)) == 10


def test_trimmed_pools_hold_the_same_in_no_more_memory_than_that_takes(pool: PagePool):
    pages = pool.take(8)
    for value, page in enumerate(pages):
        write(pool, page, value)
    for page in (pages[0], pages[3], pages[6]):
        pool.let_go(page)
    left = [pages[n] for n in (1, 2, 4, 5, 7)]

    pool.trim()

    assert pool.nbytes == 5 * PAGE_BYTES
    assert [holds(pool, page) for page in left] == [1, 2, 4, 5, 7]
    more = pool.take(5)
    assert sorted(page.index for page in [*left, *more]) == list(range(10))
    assert [holds(pool, page) for page in left] == [1, 2, 4, 5, 7]


@pytest.mark.parametrize("fails_at", range(1, 5))
def test_pools_that_cannot_grow_are_as_they_were(pool: PagePool, fails_at: int):
    pages = pool.take(2)
    for value, page in enumerate(pages):
        write(pool, page, value + 1)
    with full(fails_at), pytest.raises(RuntimeError, match="not enough memory"):
        pool.take(5)

    assert pool.held == 2
    assert [holds(pool, page) for page in pages] == [1, 2]
    more = pool.take(8)
    assert [holds(pool, page) for page in pages] == [1, 2]
    assert len({page.index for page in [*pages, *more]}) == 10


@pytest.mark.parametrize("fails_at", range(1, 5))
def test_pools_that_cannot_be_trimmed_hold_the_same(pool: PagePool, fails_at: int):
    pages = pool.take(6)
    for value, page in enumerate(pages):
        write(pool, page, value)
    pool.let_go(pages[1])
    with full(fails_at), pytest.raises(RuntimeError, match="not enough memory"):
        pool.trim()

    left = [page for page in pages if page is not pages[1]]
    assert [holds(pool, page) for page in left] == [0, 2, 3, 4, 5]
    more = pool.take(5)
    assert [holds(pool, page) for page in left] == [0, 2, 3, 4, 5]
    assert len({page.index for page in [*left, *more]}) == 10


def test_copies_are_of_every_layer(pool: PagePool):
    a, b, c, d = pool.take(4)
    write(pool, a, 1)
    write(pool, b, 2)

    pool.copy([(a, c), (b, d)])

    assert [holds(pool, page) for page in (a, b, c, d)] == [1, 2, 1, 2]
