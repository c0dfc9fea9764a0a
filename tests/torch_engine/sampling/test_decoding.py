from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
import torch
from tests.torch_engine.conftest import Tiny, random_adapter, random_tokens
from tests.torch_engine.sampling.harness import (
    NO_STOP,
    decoding_of,
    failure_of,
    finish,
    greedy,
    reference_logits,
    request,
    sample_all,
    sample_one,
)

from mint.core.errors import Fault
from mint.core.ids import OperationId
from mint.core.operations import Failure, SampleResult
from mint.core.sampling import StopReason
from mint.torch_engine import attention
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.kv_cache import KvCache, Place
from mint.torch_engine.kv_pages import Page, PagePool
from mint.torch_engine.models.files import ModelFiles
from mint.torch_engine.models.loader import load_module
from mint.torch_engine.models.tiny import Family
from mint.torch_engine.uniforms import stream, uniforms

pytestmark = pytest.mark.usefixtures("layout")

SHAPES: list[tuple[Family, dict[str, int | bool]]] = [
    ("llama", {"kv_heads": 2}),
    ("llama", {"kv_heads": 4, "tied": False}),
    ("qwen2", {"kv_heads": 1}),
    ("qwen3", {"kv_heads": 2}),
]


def tokens_of(result: SampleResult) -> list[list[int]]:
    return [s.tokens.tolist() for s in result.sequences]


@pytest.mark.parametrize(("family", "shape"), SHAPES)
@pytest.mark.parametrize("with_adapter", [False, True])
def test_greedy_sampling_says_what_transformers_generates(
    tiny_of: Callable[..., Tiny], family: Family, shape: dict[str, int], with_adapter: bool
):
    tiny = tiny_of(family, **shape)
    adapter = random_adapter(tiny.decoder) if with_adapter else None
    prompts = random_tokens(np.random.default_rng(1), 1, 5, 16, 17, 60)

    found = sample_all(
        decoding_of(tiny),
        {
            str(i): (request(prompt, num_samples=2, max_tokens=40, temperature=0), adapter)
            for i, prompt in enumerate(prompts)
        },
    )

    for i, prompt in enumerate(prompts):
        assert tokens_of(found[str(i)]) == [greedy(tiny, prompt.tolist(), 40, adapter)] * 2


@pytest.mark.parametrize(("family", "shape"), SHAPES)
@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_sampled_logprobs_are_those_of_the_model_at_that_temperature(
    tiny_of: Callable[..., Tiny], family: Family, shape: dict[str, int], temperature: float
):
    tiny = tiny_of(family, **shape)
    adapter = random_adapter(tiny.decoder, seed=3)
    prompt = random_tokens(np.random.default_rng(2), 23)[0]

    result = sample_one(
        tiny,
        request(
            prompt, num_samples=3, max_tokens=50, temperature=temperature, top_k=30, stop=NO_STOP
        ),
        adapter,
    )

    for sequence in result.sequences:
        whole = [*prompt.tolist(), *sequence.tokens.tolist()]
        logits_TV = reference_logits(tiny, whole, adapter) / (temperature or 1)
        logp_TV = logits_TV.log_softmax(-1)[len(prompt) - 1 : -1]
        expected = logp_TV.gather(1, torch.tensor(sequence.tokens.astype(np.int64))[:, None])
        assert len(sequence.tokens) == 50
        np.testing.assert_allclose(sequence.logprobs, expected[:, 0].numpy(), atol=1e-4)


def test_a_seeded_request_gets_the_same_tokens_alone_and_in_a_crowd(tiny: Tiny):
    rng = np.random.default_rng(3)
    mine = request(random_tokens(rng, 9)[0], num_samples=3, seed=42, max_tokens=30, top_p=0.95)
    adapters = [random_adapter(tiny.decoder, seed=i) for i in range(3)]
    crowd = {
        f"other {i}": (
            request(prompt, num_samples=1 + i % 4, max_tokens=5 + 7 * i),
            adapters[i % 3],
        )
        for i, prompt in enumerate(random_tokens(rng, 3, 9, 20, 33, 70, 5, 1, 12))
    }

    alone = sample_one(tiny, mine)
    together = sample_all(decoding_of(tiny), crowd | {"mine": (mine, None)})["mine"]

    assert tokens_of(together) == tokens_of(alone)
    for a, b in zip(alone.sequences, together.sequences, strict=True):
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)
    assert len({tuple(tokens) for tokens in tokens_of(alone)}) == 3  # each sample its own stream


def test_the_same_seed_repeats_and_no_seed_does_not(tiny: Tiny):
    prompt = [1, 2, 3]
    seeded = request(prompt, seed=7, max_tokens=20, temperature=2.0, stop=NO_STOP)
    unseeded = request(prompt, max_tokens=20, temperature=2.0, stop=NO_STOP)

    assert tokens_of(sample_one(tiny, seeded)) == tokens_of(sample_one(tiny, seeded))
    assert tokens_of(sample_one(tiny, unseeded)) != tokens_of(sample_one(tiny, unseeded))


def test_adapters_of_one_batch_each_answer_as_they_do_alone(tiny: Tiny):
    adapters = [
        None,
        random_adapter(tiny.decoder, seed=1),
        random_adapter(tiny.decoder, seed=2, rank=9),
        random_adapter(tiny.decoder, seed=3, train_mlp=False, train_unembed=False),
    ]
    for version, adapter in enumerate(adapters):
        if adapter:
            adapter.version = version
    prompt = random_tokens(np.random.default_rng(4), 11)[0]
    sample = request(prompt, num_samples=2, max_tokens=25, temperature=0, stop=NO_STOP)

    together = sample_all(
        decoding_of(tiny), {str(i): (sample, adapter) for i, adapter in enumerate(adapters)}
    )

    answers = [tokens_of(together[str(i)]) for i in range(len(adapters))]
    assert answers == [tokens_of(sample_one(tiny, sample, adapter)) for adapter in adapters]
    assert len({str(answer) for answer in answers}) == len(adapters)  # they do differ
    assert [together[str(i)].weights_version for i in range(4)] == [0, 1, 2, 3]


def test_a_prompt_prefilled_in_chunks_gives_what_it_gives_in_one(tiny: Tiny):
    prompts = random_tokens(np.random.default_rng(5), 100, 3, 57)
    requests = {
        str(i): (request(p, seed=i, max_tokens=30, prompt_logprobs=True, num_samples=2), None)
        for i, p in enumerate(prompts)
    }

    whole = sample_all(decoding_of(tiny), requests)
    chunked = sample_all(decoding_of(tiny, prefill_tokens=7), requests)

    for name, result in whole.items():
        assert tokens_of(chunked[name]) == tokens_of(result)
        expected, found = result.prompt_logprobs, chunked[name].prompt_logprobs
        assert expected is not None
        assert found is not None
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_no_more_sequences_run_than_allowed_and_all_get_their_turn(tiny: Tiny):
    prompts = random_tokens(np.random.default_rng(6), 4, 8, 4, 30)
    requests = {
        str(i): (request(p, num_samples=7, seed=i, max_tokens=12), None)
        for i, p in enumerate(prompts)
    }
    expected = sample_all(decoding_of(tiny), requests)

    few = decoding_of(tiny, max_sequences=3)
    for name, (sample, _) in requests.items():
        few.add(OperationId(name), sample, None)
    most, ended = 0, {}
    assert few.waiting == 28
    while few.busy:
        ended |= {o.operation_id: o.result for o in few.round()}
        most = max(most, few.running)

    assert most == 3
    assert list(ended) == ["0", "1", "2", "3"]  # first come, first served
    for name, result in expected.items():
        assert tokens_of(ended[name]) == tokens_of(result)


def test_a_request_waits_for_kv_room_and_then_runs(tiny: Tiny):
    # 20 prompt tokens and 11 of continuation: 31 each, so two at a time share 70.
    prompts = random_tokens(np.random.default_rng(7), 20, 20, 20, 20)
    requests = {str(i): (request(p, seed=i, max_tokens=12), None) for i, p in enumerate(prompts)}
    expected = sample_all(decoding_of(tiny), requests)

    tight = decoding_of(tiny, kv_tokens=70)
    for name, (sample, _) in requests.items():
        tight.add(OperationId(name), sample, None)
    tight.round()
    assert (tight.running, tight.waiting) == (2, 2)
    ended = finish(tight)

    for name, result in expected.items():
        found = ended[name]
        assert isinstance(found, SampleResult)
        assert tokens_of(found) == tokens_of(result)


def test_a_prompt_held_for_a_later_request_does_not_block_the_one_in_front(tiny: Tiny):
    first, second = random_tokens(np.random.default_rng(8), 30, 40)
    decoding = decoding_of(tiny, kv_tokens=66)
    decoding.add(OperationId("a"), request(first, max_tokens=3), None)
    decoding.add(OperationId("b"), request(second, max_tokens=3), None)  # needs a's room
    decoding.add(OperationId("c"), request(first, max_tokens=3), None)  # shares a's prompt

    assert all(isinstance(result, SampleResult) for result in finish(decoding).values())


def test_requests_with_the_same_prompt_and_weights_share_its_prefill(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    prompt = random_tokens(np.random.default_rng(9), 40)[0]
    seen: list[int] = []
    hidden = tiny.decoder.hidden
    decoding = decoding_of(tiny)

    def counting(tokens_T: torch.Tensor, *rest: Any):
        seen.append(len(tokens_T))
        return hidden(tokens_T, *rest)

    monkeypatch.setattr(tiny.decoder, "hidden", counting)
    sample_all(
        decoding, {name: (request(prompt, max_tokens=1, num_samples=4), None) for name in "abc"}
    )

    assert seen == [40]


def test_a_cancelled_request_ends_with_the_next_round_and_frees_its_memory(tiny: Tiny):
    prompts = random_tokens(np.random.default_rng(10), 12, 12)
    decoding = decoding_of(tiny)
    for name, prompt in zip("ab", prompts, strict=True):
        decoding.add(OperationId(name), request(prompt, seed=1, max_tokens=40, stop=NO_STOP), None)
    for _ in range(5):
        decoding.round()

    decoding.cancel(OperationId("a"))
    decoding.cancel(OperationId("never heard of"))
    (outcome,) = decoding.round()

    assert outcome.operation_id == "a"
    assert isinstance(outcome.result, Failure)
    assert outcome.result.fault is Fault.CANCELLED
    assert decoding.running == 1
    left = finish(decoding)["b"]
    assert isinstance(left, SampleResult)
    alone = sample_one(tiny, request(prompts[1], seed=1, max_tokens=40, stop=NO_STOP))
    assert tokens_of(left) == tokens_of(alone)


def test_a_request_can_be_cancelled_while_it_waits_and_in_the_middle_of_its_prefill(tiny: Tiny):
    prompts = random_tokens(np.random.default_rng(11), 50, 5)
    decoding = decoding_of(tiny, max_sequences=1, prefill_tokens=20)
    decoding.add(OperationId("long"), request(prompts[0], max_tokens=3), None)
    decoding.add(OperationId("queued"), request(prompts[1], max_tokens=3), None)
    decoding.add(OperationId("last"), request(prompts[1], max_tokens=3), None)
    decoding.round()
    decoding.cancel(OperationId("long"))
    decoding.cancel(OperationId("queued"))

    ended = finish(decoding)

    assert isinstance(ended["long"], Failure)
    assert isinstance(ended["queued"], Failure)
    assert isinstance(ended["last"], SampleResult)


def test_diverged_weights_fail_their_own_request_only(tiny: Tiny):
    broken = random_adapter(tiny.decoder, seed=1)
    with torch.no_grad():
        broken.flat.fill_(float("nan"))
    broken.version = 5
    prompts = random_tokens(np.random.default_rng(12), 6, 6)
    fine = request(prompts[0], seed=1, max_tokens=20)
    decoding = decoding_of(tiny)
    decoding.add(OperationId("fine"), fine, None)
    decoding.add(OperationId("broken"), request(prompts[1], num_samples=2), broken.pinned())
    ended = finish(decoding)
    again = sample_all(decoding, {"after": (fine, None)})  # in the place of the broken one

    assert isinstance(ended["broken"], Failure)
    assert "version 5" in ended["broken"].message
    assert ended["broken"].fault is Fault.USER
    assert isinstance(ended["fine"], SampleResult)
    assert (
        tokens_of(again["after"]) == tokens_of(ended["fine"]) == tokens_of(sample_one(tiny, fine))
    )


def test_running_sequences_that_cannot_grow_for_want_of_memory_fail_and_the_next_request_runs(
    tiny: Tiny, layout: str, monkeypatch: pytest.MonkeyPatch
):
    decoding = decoding_of(tiny, max_sequences=2)
    for name in "ab":
        sample = request([1, 2, 3], max_tokens=100, seed=1, num_samples=1, stop=NO_STOP)
        decoding.add(OperationId(name), sample, None)
    decoding.add(OperationId("waits"), request([5], max_tokens=9, seed=1, stop=NO_STOP), None)
    decoding.round()

    def full(*_: object) -> None:
        raise RuntimeError("not enough memory: you tried to allocate 1 GB.")

    holder, name = {"contiguous": (KvCache, "lengthen"), "paged": (PagePool, "take")}[layout]
    ended = {}
    with monkeypatch.context() as memory:
        memory.setattr(holder, name, full)
        while len(ended) < 2:
            ended |= {o.operation_id: o.result for o in decoding.round()}
    ended |= finish(decoding)

    for name in "ab":
        assert isinstance(ended[OperationId(name)], Failure)
        assert "not enough memory" in ended[OperationId(name)].message
    assert isinstance(ended[OperationId("waits")], SampleResult)
    decoding.forget_cached()
    assert (decoding._kv.reserved, decoding.kv_bytes) == (0, 0)


def test_a_slice_that_throws_fails_those_in_it_and_the_next_request_runs(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    decoding = decoding_of(tiny)
    sample = request([1, 2, 3], max_tokens=4, seed=1, stop=NO_STOP)

    def out_of_memory(*_: object) -> None:
        raise RuntimeError("not enough memory: you tried to allocate 1 GB.")

    with monkeypatch.context() as patched:
        patched.setattr(tiny.decoder, "hidden", out_of_memory)
        failure = failure_of(decoding, sample)

    assert failure.fault is Fault.SERVER
    assert "not enough memory" in failure.message
    assert len(tokens_of(sample_all(decoding, {"next": (sample, None)})["next"])[0]) == 4


def test_a_request_whose_memory_is_not_there_fails_alone_and_is_not_counted(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
):
    decoding = decoding_of(tiny)
    new_prompt, take = KvCache.new_prompt, PagePool.take

    def too_long(kv: KvCache, tokens: int) -> Place:
        if tokens == 40:
            raise RuntimeError("not enough memory: you tried to allocate 1 GB.")
        return new_prompt(kv, tokens)

    def too_many(pool: PagePool, count: int) -> list[Page]:
        if count == 3:
            raise RuntimeError("not enough memory: you tried to allocate 1 GB.")
        return take(pool, count)

    monkeypatch.setattr(KvCache, "new_prompt", too_long)
    monkeypatch.setattr(PagePool, "take", too_many)
    for name, length in (("before", 3), ("long", 40), ("after", 5)):
        prompt = request(list(range(length)), num_samples=2, max_tokens=4, stop=NO_STOP)
        decoding.add(OperationId(name), prompt, None)
    ended = finish(decoding)

    failure = ended["long"]
    assert isinstance(failure, Failure)
    assert failure.fault is Fault.SERVER
    assert "not enough memory" in failure.message
    assert isinstance(ended["before"], SampleResult)
    assert isinstance(ended["after"], SampleResult)
    decoding.forget_cached()
    assert decoding._kv.reserved == 0


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(tiny: Tiny):
    failure = failure_of(decoding_of(tiny), request([1] * 512))

    assert failure.fault is Fault.USER
    assert "512 tokens" in failure.message
    assert "context holds 512" in failure.message


def test_without_max_tokens_a_sequence_runs_to_the_end_of_the_context(tiny: Tiny):
    result = sample_one(tiny, request([1] * 500, stop=NO_STOP))

    assert len(result.sequences[0].tokens) == 12
    assert result.sequences[0].stop_reason is StopReason.LENGTH


def test_a_request_that_can_never_fit_is_refused_with_the_numbers(tiny: Tiny, layout: str):
    failure = failure_of(decoding_of(tiny, kv_tokens=50), request([1] * 20, max_tokens=40))

    assert failure.fault is Fault.USER
    assert "59 tokens" in failure.message
    most = {"contiguous": 50, "paged": 32}[layout]  # of three pages one may have to be a copy
    assert f"{most} at most" in failure.message


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        (request([]), "prompt is empty"),
        (request([1, 9999]), "prompt[1] is token id 9999"),
        (request([1], num_samples=0), "num_samples=0"),
        (request([1], topk_sample_logprobs=-1), "topk_sample_logprobs=-1"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(tiny: Tiny, sample, told: str):
    failure = failure_of(decoding_of(tiny), sample)

    assert failure.fault is Fault.USER
    assert told in failure.message


def test_sampling_leaves_an_adapter_in_training_trainable(tiny: Tiny):
    adapter = random_adapter(tiny.decoder)
    result = sample_one(tiny, request([1, 2], max_tokens=3), adapter)

    assert len(result.sequences) == 1
    assert all(w.requires_grad for pair in adapter.pairs.values() for w in pair)
    assert torch.is_grad_enabled()


def test_joining_and_leaving_at_every_step_changes_nothing(tiny: Tiny):
    """Requests of all lengths come one a round, so places move and grow the whole time."""
    rng = np.random.default_rng(13)
    lengths = rng.integers(1, 50, 24)
    prompts = random_tokens(rng, *lengths.tolist())
    adapters = [None, random_adapter(tiny.decoder, seed=1)]
    requests = [
        request(p, num_samples=int(rng.integers(1, 6)), seed=i, max_tokens=int(rng.integers(1, 60)))
        for i, p in enumerate(prompts)
    ]
    decoding = decoding_of(tiny, max_sequences=20, kv_tokens=1500)
    ended = {}
    for i, sample in enumerate(requests):
        adapter = adapters[i % 2]
        decoding.add(OperationId(str(i)), sample, adapter.pinned() if adapter else None)
        ended |= {o.operation_id: o.result for o in decoding.round()}
    ended |= finish(decoding)

    for i, sample in enumerate(requests):
        alone = sample_one(tiny, sample, adapters[i % 2])
        for k, (found, expected) in enumerate(
            zip(tokens_of(ended[str(i)]), tokens_of(alone), strict=True)
        ):
            n = first_difference(found, expected)
            if n is None:
                continue
            logits_V = reference_logits(tiny, [*prompts[i].tolist(), *found[:n]], adapters[i % 2])
            drawn = uniforms(np.array([stream(i, k)]), np.array([n], dtype=np.uint64))[0]
            assert is_tie(logits_V[-1], drawn, found[n], expected[n])


def first_difference(one: list[int], other: list[int]) -> int | None:
    return next((n for n, (a, b) in enumerate(zip_longest(one, other)) if a != b), None)


def is_tie(logits_V: torch.Tensor, uniform: float, one: int, other: int) -> bool:
    """Whether a draw's number lies where the one token ends and the other begins, as closely as two
    ways of computing the logits agree: some thousand draws meet that now and then."""
    bounds = logits_V.double().softmax(-1).cumsum(-1)[min(one, other) : max(one, other)]
    return bool(((bounds - uniform).abs() < 1e-5).all())


def test_bfloat16_weights_give_bfloat16_logprobs_of_the_same_text(tiny: Tiny):
    """Looser by nature: bf16 has 8 bits, and no two ways of computing agree closer."""
    files = ModelFiles("tiny", tiny.folder, "folder")
    module = load_module(files, dtype="bfloat16", device="cpu", attention=attention.ATTENTION)
    half = Tiny(tiny.folder, Decoder(module), tiny.plain)
    prompt = random_tokens(np.random.default_rng(14), 20)[0]

    (sequence,) = sample_one(
        half, request(prompt, seed=1, max_tokens=40, stop=NO_STOP), random_adapter(tiny.decoder)
    ).sequences

    whole = [*prompt.tolist(), *sequence.tokens.tolist()]
    logp_TV = reference_logits(tiny, whole, random_adapter(tiny.decoder)).log_softmax(-1)
    expected = logp_TV[len(prompt) - 1 : -1].gather(
        1, torch.tensor(sequence.tokens.astype(np.int64))[:, None]
    )
    assert np.abs(sequence.logprobs - expected[:, 0].numpy()).mean() < 0.1
