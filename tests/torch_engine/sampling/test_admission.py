"""Who runs, who waits, and who is set back when there is no more room."""

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
from mint.core.operations import SampleResult
from mint.core.sampling import Stop
from mint.torch_engine import admission
from mint.torch_engine.admission import SamplingFigures
from mint.torch_engine.decoding import Decoding

pytestmark = pytest.mark.usefixtures("layout")


@pytest.fixture(autouse=True)
def _small_first_room(monkeypatch: pytest.MonkeyPatch):
    """So that sequences of few tokens already have to grow."""
    monkeypatch.setattr(admission, "FIRST_ROOM", 8)


def assert_same(found: Any, expected: SampleResult) -> None:
    assert isinstance(found, SampleResult), found
    for a, b in zip(found.sequences, expected.sequences, strict=True):
        assert a.tokens.tolist() == b.tokens.tolist()
        assert a.stop_reason is b.stop_reason
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=3e-5)
        if b.topk:
            assert a.topk
            assert a.topk.token_ids.tolist() == b.topk.token_ids.tolist()


def test_as_many_run_as_their_first_tokens_leave_room_for(tiny: Tiny):
    """With the longest continuation set aside at once, one would run."""
    prompts = random_tokens(np.random.default_rng(1), 20, 20, 20, 20)
    decoding = decoding_of(tiny, kv_tokens=130)
    for n, prompt in enumerate(prompts):
        decoding.add(OperationId(str(n)), request(prompt), None)  # as long as the room allows
    decoding.round()
    assert (decoding.running, decoding.waiting) == (4, 0)


def test_the_youngest_gives_way_and_then_says_what_it_would_have_said(tiny: Tiny):
    prompts = random_tokens(np.random.default_rng(2), 20, 20, 20)
    samples = [
        request(p, seed=n, max_tokens=40, stop=NO_STOP, topk_sample_logprobs=2)
        for n, p in enumerate(prompts)
    ]
    figures = SamplingFigures()
    decoding = decoding_of(tiny, kv_tokens=110, figures=figures)
    for n, sample in enumerate(samples):
        decoding.add(OperationId(str(n)), sample, None)

    ended, most, least = {}, 0, 3
    while decoding.busy:
        ended |= {o.operation_id: o.result for o in decoding.round()}
        assert decoding._kv.reserved <= 110
        most = max(most, decoding.running)
        if not ended:
            least = min(least, decoding.running or 3)

    assert (most, least) == (3, 1)
    assert figures.set_back >= 2
    assert list(ended) == ["0", "1", "2"]  # the oldest was never held up
    for n, sample in enumerate(samples):
        assert_same(ended[str(n)], sample_one(tiny, sample))


def test_samples_of_one_prompt_are_set_back_and_go_on_after_it(tiny: Tiny):
    """They follow the one place that their prompt has, with an adapter, in chunks of a few
    tokens, and with too little room to keep what they had."""
    (prompt,) = random_tokens(np.random.default_rng(3), 37)
    adapter = random_adapter(tiny.decoder)
    sample = request(prompt, seed=5, num_samples=6, max_tokens=40, stop=NO_STOP)
    figures = SamplingFigures()
    decoding = decoding_of(tiny, kv_tokens=150, prefill_tokens=19, figures=figures)

    found = sample_all(decoding, {"all": (sample, adapter)})["all"]

    assert figures.set_back > 0
    assert_same(found, sample_one(tiny, sample, adapter))


def test_what_is_still_cached_of_a_sequence_is_not_computed_again(
    tiny: Tiny, layout: str, monkeypatch: pytest.MonkeyPatch
):
    prompts = random_tokens(np.random.default_rng(4), 10, 10)
    samples = [request(p, seed=n, max_tokens=40, stop=NO_STOP) for n, p in enumerate(prompts)]
    figures = SamplingFigures()
    # Both need 10 + 39. In one piece the younger is set back with 32 of its own, and finds the first
    # block of its text again, which has 6 of them. Of six pages it has three when it is set back,
    # with 38 of its own, and loses one of them to the older: the others have 22.
    again = {"contiguous": 32 - 6, "paged": 38 - 22}[layout]
    decoding = decoding_of(tiny, kv_tokens=97, figures=figures)
    for n, sample in enumerate(samples):
        decoding.add(OperationId(str(n)), sample, None)
    seen: list[int] = []
    hidden = tiny.decoder.hidden

    def counting(tokens_T: Any, *rest: Any, **more: Any):
        seen.append(len(tokens_T))
        return hidden(tokens_T, *rest, **more)

    monkeypatch.setattr(tiny.decoder, "hidden", counting)
    ended = finish(decoding)

    assert figures.set_back == 1
    assert [n for n in seen[1:] if n > 2] == [again]
    monkeypatch.undo()
    for n, sample in enumerate(samples):
        assert_same(ended[str(n)], sample_one(tiny, sample))


def test_a_sequence_that_was_set_back_can_be_cancelled(tiny: Tiny):
    prompts = random_tokens(np.random.default_rng(5), 20, 20)
    decoding = decoding_of(tiny, kv_tokens=80)
    for n, prompt in enumerate(prompts):
        sample = request(prompt, seed=n, max_tokens=40, stop=NO_STOP)
        decoding.add(OperationId(str(n)), sample, None)
    while decoding.waiting == 0:
        decoding.round()

    decoding.cancel(OperationId("1"))
    decoding.round()

    assert (decoding.running, decoding.waiting) == (1, 0)
    assert isinstance(finish(decoding)["0"], SampleResult)


def run_at_random(tiny: Tiny, seed: int) -> None:
    """Little room, few places, adapters, common beginnings, stop tokens, cancellations."""
    rng = np.random.default_rng(seed)
    adapter = random_adapter(tiny.decoder)
    weights = [None, adapter.pinned()]
    room = int(rng.integers(110, 400))
    decoding: Decoding = decoding_of(
        tiny,
        kv_tokens=room,
        max_sequences=int(rng.integers(2, 20)),
        prefill_tokens=int(rng.integers(5, 100)),
    )
    trunk = random_tokens(rng, 40)[0]
    samples, cancelled, ended = {}, set(), {}
    for i in range(10):
        tail = random_tokens(rng, int(rng.integers(1, 30)))[0]
        text = np.concatenate([trunk[: rng.integers(0, 41)], tail])
        samples[str(i)] = (
            request(
                text,
                seed=i,
                num_samples=int(rng.integers(1, 6)),
                max_tokens=int(rng.integers(1, 40)),
                stop=Stop() if rng.random() < 0.5 else NO_STOP,
                temperature=float(rng.choice([0.0, 0.8, 1.0])),
            ),
            int(rng.integers(2)),
        )
        decoding.add(OperationId(str(i)), samples[str(i)][0], weights[samples[str(i)][1]])
        for _ in range(int(rng.integers(0, 12))):
            ended |= {o.operation_id: o.result for o in decoding.round()}
            assert decoding._kv.reserved <= room
        if rng.random() < 0.15:
            cancelled.add(str(i))
            decoding.cancel(OperationId(str(i)))
    ended |= finish(decoding)

    assert ended.keys() == samples.keys()
    expected = sample_all(
        decoding_of(tiny),
        {name: (sample, adapter if which else None) for name, (sample, which) in samples.items()},
    )
    for name in samples.keys() - cancelled:
        assert_same(ended[name], expected[name])
    weights.clear()
    decoding.forget_cached()
    assert (decoding._kv.reserved, decoding.kv_bytes) == (0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_and_goes_all_end_and_say_what_they_say_with_ample_room(
    tiny: Tiny, seed: int
):
    run_at_random(tiny, seed)
