"""What begins alike is computed once, and nothing else changes."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.torch_engine.conftest import Tiny, random_adapter, random_tokens
from tests.torch_engine.sampling.harness import (
    NO_STOP,
    decoding_of,
    finish,
    request,
    sample_all,
    sample_one,
)

from mint.core.ids import OperationId
from mint.core.operations import Sample, SampleResult
from mint.torch_engine.admission import SamplingFigures
from mint.torch_engine.decoding import Decoding
from mint.torch_engine.kv_cache import KvCache
from mint.torch_engine.lora import AdapterWeights

pytestmark = pytest.mark.usefixtures("layout")


def asked(prompt: Sequence[int] | np.ndarray, **how: Any) -> Sample:
    return request(prompt, **({"max_tokens": 12, "seed": 1, "stop": NO_STOP} | how))


def answer(decoding: Decoding, sample: Sample, weights: AdapterWeights | None = None):
    decoding.add(OperationId("one"), sample, weights)
    result = finish(decoding)["one"]
    assert isinstance(result, SampleResult)
    return result


def assert_same(found: SampleResult, expected: SampleResult) -> None:
    for a, b in zip(found.sequences, expected.sequences, strict=True):
        assert a.tokens.tolist() == b.tokens.tolist()
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=3e-5)


@contextmanager
def computed(tiny: Tiny) -> Iterator[list[int]]:
    """Tokens of each forward pass."""
    seen: list[int] = []
    hidden = tiny.decoder.hidden

    def counting(tokens_T: Any, *rest: Any, **more: Any):
        seen.append(len(tokens_T))
        return hidden(tokens_T, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny.decoder, "hidden", counting)
        yield seen


def test_a_prompt_computes_only_what_follows_the_beginning_it_shares(tiny: Tiny):
    first, other = random_tokens(np.random.default_rng(1), 50, 30)
    second = np.concatenate([first[:40], other])  # two whole blocks of 16 in common
    figures = SamplingFigures()
    decoding = decoding_of(tiny, figures=figures)
    answer(decoding, asked(first))

    with computed(tiny) as seen:
        found = answer(decoding, asked(second, num_samples=3))

    assert seen[0] == 70 - 32
    assert (figures.prompt_tokens, figures.reused_tokens) == (120, 32)
    assert_same(found, sample_one(tiny, asked(second, num_samples=3)))


def test_the_next_turn_of_a_dialogue_starts_after_what_was_sampled(tiny: Tiny):
    rng = np.random.default_rng(2)
    decoding = decoding_of(tiny)
    text = random_tokens(rng, 21)[0]
    new = text
    for turn in range(4):
        with computed(tiny) as seen:
            found = answer(decoding, asked(text, max_tokens=25, seed=turn))
        assert_same(found, sample_one(tiny, asked(text, max_tokens=25, seed=turn)))
        if turn:
            there = len(text) - len(new) - 1  # the last sampled token was never fed back
            assert seen[0] == len(text) - there // 16 * 16
        (new,) = random_tokens(rng, 7)
        text = np.concatenate([text, found.sequences[0].tokens, new])


@pytest.mark.parametrize("length", [15, 16, 17, 48, 50])
def test_the_same_prompt_again_computes_less_than_a_block(tiny: Tiny, length: int):
    (prompt,) = random_tokens(np.random.default_rng(3), length)
    decoding = decoding_of(tiny)
    first = answer(decoding, asked(prompt, max_tokens=1))

    with computed(tiny) as seen:
        again = answer(decoding, asked(prompt, max_tokens=1))

    assert seen == [length % 16 or 1]  # the last token's hidden state is not kept
    assert_same(again, first)


def test_prompts_that_come_together_compute_their_common_beginning_once(tiny: Tiny):
    rng = np.random.default_rng(4)
    system, *questions = random_tokens(rng, 40, 20, 25, 9, 3)
    adapter = random_adapter(tiny.decoder)
    prompts = [np.concatenate([system, q]) for q in questions]
    requests = {str(i): (asked(p, seed=i, num_samples=2), None) for i, p in enumerate(prompts)}
    decoding = decoding_of(tiny)
    weights = adapter.pinned()
    for name, (sample, _) in requests.items():
        decoding.add(OperationId(name), sample, None)
        decoding.add(OperationId(f"{name} adapted"), sample, weights)

    with computed(tiny) as seen:
        found = finish(decoding)

    once = sum(len(p) for p in prompts) - 3 * 32
    assert seen[0] == 2 * once  # with and without the adapter: nothing in common between those
    for name, (sample, _) in requests.items():
        assert_same(found[name], sample_one(tiny, sample))  # pyright: ignore[reportArgumentType]
        adapted = found[f"{name} adapted"]
        assert_same(adapted, sample_one(tiny, sample, adapter))  # pyright: ignore[reportArgumentType]


def test_a_common_beginning_longer_than_a_slice_is_computed_once(tiny: Tiny):
    rng = np.random.default_rng(5)
    system, a, b = random_tokens(rng, 100, 10, 20)
    prompts = [np.concatenate([system, a]), np.concatenate([system, b])]
    decoding = decoding_of(tiny, prefill_tokens=30)
    for n, prompt in enumerate(prompts):
        decoding.add(OperationId(str(n)), asked(prompt, max_tokens=1), None)

    with computed(tiny) as seen:
        found = finish(decoding)

    assert sum(seen) == 110 + 120 - 96
    for n, prompt in enumerate(prompts):
        expected = sample_one(tiny, asked(prompt, max_tokens=1))
        assert_same(found[str(n)], expected)  # pyright: ignore[reportArgumentType]


def test_versions_share_nothing(tiny: Tiny):
    (prompt,) = random_tokens(np.random.default_rng(6), 40)
    adapters = [None, random_adapter(tiny.decoder, seed=1), random_adapter(tiny.decoder, seed=2)]
    versions = [adapter and adapter.pinned() for adapter in adapters]
    decoding = decoding_of(tiny)

    for adapter, weights in zip(adapters, versions, strict=True):
        with computed(tiny) as seen:
            found = answer(decoding, asked(prompt), weights)
        assert seen[0] == 40
        assert_same(found, sample_one(tiny, asked(prompt), adapter))


def test_what_was_cached_of_weights_goes_with_them(tiny: Tiny):
    (prompt,) = random_tokens(np.random.default_rng(7), 40)
    decoding = decoding_of(tiny)
    answer(decoding, asked(prompt))
    of_base = decoding.cached_tokens
    weights = random_adapter(tiny.decoder).pinned()
    answer(decoding, asked(prompt), weights)
    assert decoding.cached_tokens == 2 * of_base == 2 * 48  # 40 and 11 of 12 sampled: 3 blocks

    del weights
    gc.collect()

    assert decoding.cached_tokens == of_base
    with computed(tiny) as seen:
        answer(decoding, asked(prompt), random_adapter(tiny.decoder).pinned())
    assert seen[0] == 40


def test_what_is_cached_makes_room_for_who_runs_the_oldest_first(tiny: Tiny, layout: str):
    prompts = random_tokens(np.random.default_rng(8), 32, 32, 32)
    # Pages are not copied into the cache: less room is enough for what is kept.
    decoding = decoding_of(tiny, kv_tokens={"contiguous": 120, "paged": 96}[layout])
    for prompt in prompts[:2]:
        answer(decoding, asked(prompt, max_tokens=1))
    answer(decoding, asked(prompts[0], max_tokens=1))  # used again, so the other one is older
    assert decoding.cached_tokens == 64

    decoding.add(OperationId("new"), asked(prompts[2], max_tokens=30), None)
    decoding.round()
    assert (decoding.running, decoding.waiting) == (1, 0)  # it need not wait for room
    new = finish(decoding)["new"]

    assert_same(new, sample_one(tiny, asked(prompts[2], max_tokens=30)))  # pyright: ignore[reportArgumentType]
    with computed(tiny) as seen:
        kept, gone = (answer(decoding, asked(p, max_tokens=1)) for p in prompts[:2])
    assert seen == [1, 32]
    assert_same(kept, sample_one(tiny, asked(prompts[0], max_tokens=1)))
    assert_same(gone, sample_one(tiny, asked(prompts[1], max_tokens=1)))


def test_scored_positions_are_computed_and_what_is_before_them_is_not(tiny: Tiny):
    (prompt,) = random_tokens(np.random.default_rng(9), 60)
    decoding = decoding_of(tiny)
    answer(decoding, asked(prompt))
    last = asked(prompt, prompt_logprobs=True, prompt_logprobs_last_n=10, topk_prompt_logprobs=2)
    whole = asked(prompt, prompt_logprobs=True)

    with computed(tiny) as seen:
        found, all_of_it = answer(decoding, last), answer(decoding, whole)

    assert seen[0] == 60 - 48  # the last 10 are predicted from position 49 on
    assert seen[12] == 60  # after 11 decode steps
    for scored, sample in ((found, last), (all_of_it, whole)):
        expected = sample_one(tiny, sample)
        assert_same(scored, expected)
        assert scored.prompt_logprobs is not None
        assert expected.prompt_logprobs is not None
        np.testing.assert_allclose(scored.prompt_logprobs, expected.prompt_logprobs, atol=1e-5)


@pytest.mark.parametrize("layout", ["contiguous"], indirect=True)  # pages are not copied
def test_without_memory_for_the_cache_requests_do_as_well(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    (prompt,) = random_tokens(np.random.default_rng(10), 40)
    decoding = decoding_of(tiny)
    answer(decoding, asked(prompt))
    assert decoding.cached_tokens

    def full(*_: object) -> None:
        raise RuntimeError("not enough memory: you tried to allocate 1 GB.")

    monkeypatch.setattr(KvCache, "new_block", full)
    found = answer(decoding, asked(prompt[::-1]))

    assert_same(found, sample_one(tiny, asked(prompt[::-1])))
    assert decoding.cached_tokens == 0


def test_forgetting_gives_all_memory_back(tiny: Tiny, layout: str):
    (prompt,) = random_tokens(np.random.default_rng(11), 40)
    decoding = decoding_of(tiny)
    answer(decoding, asked(prompt))
    shape = tiny.decoder
    token = 2 * shape.layers * shape.kv_heads * shape.head_dim * 4
    unused = {"contiguous": 0, "paged": 16}[layout]  # a page stays until its memory is needed
    assert decoding.kv_bytes == (decoding.cached_tokens + unused) * token > 0

    decoding.forget_cached()

    assert (decoding.kv_bytes, decoding.cached_tokens, decoding._kv.reserved) == (0, 0, 0)


def test_a_crowd_with_common_beginnings_says_what_each_says_alone(tiny: Tiny):
    """Beginnings of beginnings, adapters, chunks, little room: hits, partial hits, evictions."""
    rng = np.random.default_rng(12)
    adapter = random_adapter(tiny.decoder)
    weights = [None, adapter.pinned()]
    trunk, *twigs = random_tokens(rng, 70, *rng.integers(1, 40, 12).tolist())
    decoding = decoding_of(tiny, kv_tokens=400, prefill_tokens=50, max_sequences=12)
    samples: dict[str, tuple[Sample, int]] = {}
    ended = {}
    for i, twig in enumerate(twigs):
        text = np.concatenate([trunk[: rng.integers(0, 71)], twig])
        n, count, which = int(rng.integers(1, 4)), int(rng.integers(1, 25)), int(rng.integers(2))
        samples[str(i)] = asked(text, seed=i, max_tokens=count, num_samples=n), which
        decoding.add(OperationId(str(i)), samples[str(i)][0], weights[which])
        for _ in range(int(rng.integers(0, 12))):
            ended |= {o.operation_id: o.result for o in decoding.round()}
            assert decoding._kv.reserved <= 400
    ended |= finish(decoding)

    for name, (sample, which) in samples.items():
        assert_same(ended[name], sample_one(tiny, sample, adapter if which else None))
    decoding.forget_cached()
    assert (decoding._kv.reserved, decoding.kv_bytes) == (0, 0)


def test_requests_of_one_prompt_after_each_other_are_told_apart_by_their_seeds(tiny: Tiny):
    (prompt,) = random_tokens(np.random.default_rng(13), 33)
    decoding = decoding_of(tiny)
    found = [answer(decoding, asked(prompt, seed=n, temperature=2.0)) for n in range(2)]

    together = sample_all(
        decoding, {str(n): (asked(prompt, seed=n, temperature=2.0), None) for n in range(2)}
    )

    assert found[0].sequences[0].tokens.tolist() != found[1].sequences[0].tokens.tolist()
    for n in range(2):
        assert_same(together[str(n)], found[n])
