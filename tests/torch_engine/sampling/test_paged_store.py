"""Block tables: what is shared, what is copied, and that every page is counted once."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
import torch

from mint.core.errors import ConfigError
from mint.torch_engine.kv_pages import Page, PagePool
from mint.torch_engine.kv_store import KvShape, Piece
from mint.torch_engine.paged_attention import gathered_attention
from mint.torch_engine.paged_store import PagedStore, PagedText

PAGE = 4
SHAPE = KvShape(layers=2, kv_heads=1, head_dim=3, dtype=torch.float32, device=torch.device("cpu"))
PAGE_BYTES = 2 * 2 * PAGE * 1 * 3 * 4


@pytest.fixture
def store() -> PagedStore:
    return PagedStore(SHAPE, 40, PAGE, gathered_attention)


def keys_of(store: PagedStore, tokens: Iterable[int]) -> list[bytes]:
    return store.names.of(None, np.array([*tokens], dtype=np.int32))


def prompt_of(store: PagedStore, tokens: Iterable[int], then: int = 0) -> PagedText:
    """A prompt with all its keys and values."""
    tokens = [*tokens]
    text = store.new_prompt(len(tokens), keys_of(store, tokens), then=then, spare=0)
    assert text
    store.fill(text, keys_of(store, tokens), len(tokens) - 1)
    text.used = len(tokens)
    return text


def sample_of(store: PagedStore, prompt: PagedText, room: int) -> PagedText:
    text = store.new_continuation(prompt, room, spare=0)
    assert text
    return text


def decode(store: PagedStore, *texts: PagedText) -> None:
    """One more token of each."""
    store.decode_plan(texts)
    for text in texts:
        text.used += 1


def pages_held(store: PagedStore) -> int:
    return store.reserved // PAGE


def test_samples_share_their_prompts_whole_pages_and_the_first_continues_in_its_last(
    store: PagedStore, monkeypatch: pytest.MonkeyPatch
):
    prompt = prompt_of(store, range(10), then=5)  # two whole pages, and two tokens of a third
    assert pages_held(store) == 3
    copied: list[tuple[Page, Page]] = []
    monkeypatch.setattr(PagePool, "copy", lambda pool, pairs: copied.extend(pairs))

    first, second, third = (sample_of(store, prompt, 5) for _ in range(3))
    assert pages_held(store) == 3 + 1 + 2 + 2
    decode(store, first, second, third)
    decode(store, first, second, third)

    last = prompt.pages[2]
    assert first.pages[0] is last
    assert copied == [(last, second.pages[0]), (last, third.pages[0])]  # each once


def test_a_sample_takes_the_last_page_over_when_the_one_before_has_left(store: PagedStore):
    prompt = prompt_of(store, range(10))
    first = sample_of(store, prompt, 1)
    decode(store, first)
    store.close(first, keys_of(store, range(11)))

    second = sample_of(store, prompt, 1)

    assert second.pages == [prompt.pages[2]]
    assert second.unfinished is None


def test_a_whole_page_that_is_known_is_shared_and_not_copied(
    store: PagedStore, monkeypatch: pytest.MonkeyPatch
):
    prompt = prompt_of(store, range(10))
    pages = list(prompt.pages)
    store.close(prompt, keys_of(store, range(10)))
    assert (store.reserved, store.cached_tokens) == (8, 8)
    monkeypatch.setattr(PagePool, "copy", None)

    again = prompt_of(store, [*range(8), 90, 91, 92])

    assert again.pages[:2] == pages[:2]
    assert (again.shared, pages_held(store), store.cached_tokens) == (8, 3, 0)


def test_a_sequence_that_was_set_back_finds_its_whole_pages_again(store: PagedStore):
    prompt = prompt_of(store, range(6))
    sample = sample_of(store, prompt, 9)
    for _ in range(7):
        decode(store, sample)  # 13 tokens in all: three whole pages
    pages = list(sample.pages)
    keys = keys_of(store, range(13))
    store.close(sample, keys)

    again = store.new_continuation(prompt, 9, again=7, keys=keys, spare=0)
    assert again
    store.fill(again, keys, 7)

    assert again.pages[:2] == pages[:2]
    assert again.used == 6  # the last token's page was not whole
    assert again.unfinished is None


def test_a_page_that_is_found_late_is_not_overwritten_with_the_prompts(store: PagedStore):
    """A sequence that was set back is about to copy its prompt's last page, when a twin that said
    the same leaves the page with more in it."""
    prompt = prompt_of(store, range(6))
    first, twin = sample_of(store, prompt, 1), sample_of(store, prompt, 5)
    for _ in range(4):
        decode(store, twin)
    keys = keys_of(store, range(10))
    late = store.new_continuation(prompt, 5, again=4, keys=keys, spare=0)
    assert late
    assert late.unfinished is first.pages[0]
    known = twin.pages[0]
    store.close(twin, keys)
    for pool in store._pool.k_PSKD:
        pool[known.index] = 7.0

    store.fill(late, keys, 4)
    decode(store, late)

    assert late.pages[0] is known
    assert (store._pool.k_PSKD[0][known.index] == 7.0).all()


def test_a_sample_that_leaves_before_its_prompt_is_computed_caches_nothing(store: PagedStore):
    keys = keys_of(store, range(8))
    prompt = store.new_prompt(8, keys, then=4, spare=0)
    assert prompt
    sample = sample_of(store, prompt, 4)

    store.close(sample, keys)
    store.close(prompt, keys)

    assert (store.reserved, store.cached_tokens) == (0, 0)


def test_a_prompt_is_not_written_where_another_has_written(store: PagedStore):
    """The last token of a known prompt is computed again for its hidden state only."""
    prompt = prompt_of(store, range(8))
    store.close(prompt, keys_of(store, range(8)))
    again = store.new_prompt(8, keys_of(store, range(8)), then=0, spare=0)
    assert again
    store.fill(again, keys_of(store, range(8)), 7)
    assert again.used == 7
    before = [pool.clone() for pool in store._pool.k_PSKD]

    plan = store.prefill_plan([Piece(again, 7, 8)])
    q, k, v = (torch.randn(1, 1, 3) for _ in range(3))
    for layer in range(2):
        plan.attend(layer, q, k, v, 1.0)

    assert all(torch.equal(a, b) for a, b in zip(before, store._pool.k_PSKD, strict=True))


def test_what_another_prompt_will_have_after_the_slice_is_shared_in_whole_pages(
    store: PagedStore,
):
    donor = store.new_prompt(11, keys_of(store, range(11)), then=0, spare=0)
    text = store.new_prompt(11, keys_of(store, [*range(9), 70, 71]), then=0, spare=0)
    assert donor
    assert text
    assert store.shareable(2, there=11) == 8
    assert store.shareable(2, there=7) == 4

    assert store.share(text, donor, 8) is None  # no donor to copy from
    assert text.pages[:2] == donor.pages[:2]
    assert pages_held(store) == 4

    store.close(text, keys_of(store, range(11)))  # say, the slice failed
    assert (pages_held(store), store.cached_tokens) == (3, 0)  # nothing was computed


@pytest.mark.parametrize(
    ("room", "spare", "fits"), [(9, 0, True), (10, 0, False), (5, 4, True), (5, 8, False)]
)
def test_a_prompt_enters_only_with_room_for_its_first_sample(
    store: PagedStore, room: int, spare: int, fits: bool
):
    """Ten pages; seven are taken, and three hold 3 + 9 tokens."""
    prompt_of(store, range(100, 128))
    tokens = [1, 2, 3]

    text = store.new_prompt(3, keys_of(store, tokens), then=room, spare=spare)

    assert (text is not None) is fits
    if text:
        sample = sample_of(store, text, room)
        assert sample.room >= room
        assert pages_held(store) == 7 + -(-(3 + room) // PAGE)
    else:
        assert pages_held(store) == 7


def test_who_finds_no_room_has_taken_nothing_and_forgotten_nothing(store: PagedStore):
    known = prompt_of(store, range(8))
    store.close(known, keys_of(store, range(8)))
    prompt_of(store, range(100, 128))  # seven pages; two are cached, one is free
    holders = Counter(page.holders for page in store._pool._pages.values())

    assert store.new_prompt(20, keys_of(store, range(20)), then=0, spare=0) is None

    assert Counter(page.holders for page in store._pool._pages.values()) == holders
    assert store.cached_tokens == 8
    assert store.new_prompt(12, keys_of(store, range(12)), then=0, spare=0)  # the two and one more


def test_out_of_memory_leaves_nothing_taken(store: PagedStore, monkeypatch: pytest.MonkeyPatch):
    known = prompt_of(store, range(8))
    store.close(known, keys_of(store, range(8)))

    def full(*_: object) -> None:
        raise RuntimeError("not enough memory: you tried to allocate 1 GB.")

    with monkeypatch.context() as memory:
        memory.setattr(PagePool, "take", full)
        with pytest.raises(RuntimeError, match="not enough memory"):
            store.new_prompt(20, keys_of(store, range(20)), then=0, spare=0)

    assert (pages_held(store), store.cached_tokens) == (2, 8)


def test_the_longest_text_fits_alone_even_if_it_must_copy_a_page(store: PagedStore):
    assert (store.tokens, store.longest) == (40, 36)
    prompt = prompt_of(store, range(10))
    stays = sample_of(store, prompt, 1)  # continues in the prompt's page, so the next one copies
    sample = sample_of(store, prompt, 1)
    decode(store, stays, sample)
    store.close(stays, keys_of(store, range(11)))

    while sample.room < store.longest - 10:
        assert store.grow(sample, 26)
    while sample.used < 26:
        decode(store, sample)

    assert pages_held(store) == 10


def test_what_is_given_up_leaves_the_process(store: PagedStore):
    for start in (0, 100, 200):
        tokens = range(start, start + 8)
        store.close(prompt_of(store, tokens), keys_of(store, tokens))
    runs = prompt_of(store, range(300, 304))
    before = store.nbytes
    assert store.cached_tokens == 24

    store.give_up(2 * PAGE_BYTES)

    assert before - 4 * PAGE_BYTES < store.nbytes <= before - 2 * PAGE_BYTES
    assert len(runs.pages) == 1
    store.give_up(10**9)
    assert (store.nbytes, store.cached_tokens) == (PAGE_BYTES, 0)


def test_a_budget_of_less_than_two_pages_is_refused_with_the_numbers():
    with pytest.raises(ConfigError, match=r"kv_tokens=511: pages of 256 .* 512 at least"):
        PagedStore(SHAPE, 511, 256, gathered_attention)


def check(store: PagedStore, texts: list[PagedText]) -> None:
    """Every page is held by exactly those that have it."""
    holders = Counter(page for text in texts for page in text.pages)
    holders.update(store._cached._blocks.values())
    assert {page: page.holders for page in store._pool._pages.values()} == dict(holders)
    assert all(index == page.index for index, page in store._pool._pages.items())
    assert len(holders) <= store._pool.most


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_every_page_is_counted_once(store: PagedStore, seed: int):
    rng = np.random.default_rng(seed)
    prompts: dict[PagedText, list[int]] = {}
    samples: dict[PagedText, list[int]] = {}
    for _ in range(200):
        match rng.integers(7):
            case 0:
                tokens = [*range(rng.integers(0, 13)), *rng.integers(50, 60, rng.integers(1, 6))]
                text = store.new_prompt(len(tokens), keys_of(store, tokens), then=3, spare=0)
                if text:
                    store.fill(text, keys_of(store, tokens), len(tokens) - 1)
                    text.used = len(tokens)
                    prompts[text] = tokens
            case 1 | 2 if prompts:
                prompt = [*prompts][rng.integers(len(prompts))]
                text = store.new_continuation(prompt, int(rng.integers(0, 6)), spare=0)
                if text:
                    samples[text] = []
            case 3 | 4 if samples:
                text = [*samples][rng.integers(len(samples))]
                if text.used < text.room or (text.room and store.grow(text, 20)):
                    decode(store, text)
                    samples[text].append(int(rng.integers(2)))
            case 5 if samples:
                text = [*samples][rng.integers(len(samples))]
                assert text.prompt
                said = samples.pop(text)
                store.close(text, keys_of(store, prompts[text.prompt] + said))
            case 6 if prompts:
                text = [*prompts][rng.integers(len(prompts))]
                if all(sample.prompt is not text for sample in samples):
                    store.close(text, keys_of(store, prompts.pop(text)))
                elif rng.random() < 0.3:
                    store.give_up(PAGE_BYTES)
        check(store, [*prompts, *samples])
    for text in samples:
        assert text.prompt
        store.close(text, keys_of(store, prompts[text.prompt] + samples[text]))
    for text, tokens in prompts.items():
        store.close(text, keys_of(store, tokens))
    store.clear()
    assert (store.reserved, store.nbytes) == (0, 0)
