"""Requests on their way out: equal ones joined, and only so many at once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from tests.recipe.fake_service import Answer, Call, FakeService

from mint import types
from mint.recipe.sampling_requests import MOST_TOGETHER, Drawn, JoinedSampling, RequestSlots

T = TypeVar("T")


def numbered() -> Callable[..., Answer]:
    """A policy whose answers count up."""
    count = iter(range(1000))
    return lambda *_: ([next(count)], [-0.5], "stop")


class Held:
    """A sampling client whose answers wait to be let go."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], int, asyncio.Future[Any]]] = []

    def sample(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self.asked.append((prompt.to_ints(), num_samples, answer))
        return answer

    def let_go(self, request: int = 0) -> None:
        _, count, answer = self.asked[request]
        sequences = [
            types.SampledSequence(stop_reason="stop", sequence_id=str(n)) for n in range(count)
        ]
        answer.set_result(types.SampleResponse(sequences=sequences, prompt_cache_hit_tokens=2))


def prompt(*tokens: int) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))


PARAMS = types.SamplingParams(max_tokens=4)


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(10):
            return await work

    return asyncio.run(bounded())


def samples(service: FakeService) -> list[tuple[list[int], int]]:
    return [
        (call.arguments["prompt"].to_ints(), call.arguments["num_samples"])
        for call in service.called("sample")
    ]


def joined(service: FakeService, slots: RequestSlots | None = None) -> JoinedSampling:
    return JoinedSampling(service.create_sampling_client().result(), slots)


async def turns(count: int = 5) -> None:
    """Let everybody else have that many turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


# ------------------------------------------------------------------ joining


def test_equal_requests_of_one_turn_are_one_and_each_gets_a_sequence_of_its_own():
    service = FakeService(numbered())

    async def three() -> list[Drawn]:
        sampling = joined(service)
        same = [prompt(1, 2), prompt(1, 2), types.ModelInput(chunks=[
            types.EncodedTextChunk(tokens=[1]), types.EncodedTextChunk(tokens=[2]),
        ])]  # fmt: skip
        return await asyncio.gather(*(sampling.draw(one, PARAMS) for one in same))

    drawn = run(three())

    assert samples(service) == [([1, 2], 3)]
    assert [one.sequence.tokens for one in drawn] == [[0], [1], [2]]


@pytest.mark.parametrize(
    "other",
    [
        {"max_tokens": 5},
        {"max_tokens": 4, "temperature": 0.5},
        {"max_tokens": 4, "stop": ["x"]},
        {"max_tokens": 4, "stop": [7]},
    ],
)
def test_requests_that_ask_for_something_else_are_not_joined(other: dict[str, Any]):
    service = FakeService()

    async def two() -> None:
        sampling = joined(service)
        both = (PARAMS, types.SamplingParams(**other))
        await asyncio.gather(*(sampling.draw(prompt(1), params) for params in both))

    run(two())
    assert samples(service) == [([1], 1), ([1], 1)]


def test_prompts_that_differ_only_far_from_their_end_are_told_apart():
    service, common = FakeService(), range(100, 300)

    async def three() -> None:
        sampling = joined(service)
        prompts = [prompt(first, *common) for first in (1, 2, 1)]
        await asyncio.gather(*(sampling.draw(one, PARAMS) for one in prompts))

    run(three())
    assert sorted(samples(service)) == [([1, *common], 2), ([2, *common], 1)]


def test_requests_of_different_turns_are_not_joined():
    service = FakeService(latency_s=0.01)

    async def two() -> None:
        sampling = joined(service)
        first = asyncio.create_task(sampling.draw(prompt(1), PARAMS))
        await turns(3)
        await asyncio.gather(first, sampling.draw(prompt(1), PARAMS))

    run(two())
    assert samples(service) == [([1], 1), ([1], 1)]


def test_prompts_with_images_are_only_equal_to_themselves():
    image = types.ImageChunk(data=b"x", format="png", expected_tokens=3)
    held = Held()

    def picture() -> types.ModelInput:
        return types.ModelInput(chunks=[image])

    async def three() -> list[int]:
        held.sample = lambda prompt, num_samples, sampling_params: counts.append(num_samples)
        sampling, one = JoinedSampling(held), picture()
        work = (sampling.draw(each, PARAMS) for each in (one, one, picture()))
        await asyncio.gather(*work, return_exceptions=True)
        return counts

    counts: list[int] = []
    assert run(three()) == [2, 1]


def test_a_request_has_so_many_samples_and_no_more():
    service = FakeService()

    async def many() -> None:
        sampling = joined(service)
        work = (sampling.draw(prompt(1), PARAMS) for _ in range(MOST_TOGETHER + 3))
        await asyncio.gather(*work)

    run(many())
    assert [count for _, count in samples(service)] == [MOST_TOGETHER, 3]


def test_the_prompt_is_computed_for_the_first_and_found_by_the_others():
    held = Held()

    async def three() -> list[int]:
        sampling = JoinedSampling(held)
        work = asyncio.gather(*(sampling.draw(prompt(1, 2, 3), PARAMS) for _ in range(3)))
        await turns()
        held.let_go()
        return [drawn.cache_hit_tokens for drawn in await work]

    assert run(three()) == [2, 3, 3]


# ---------------------------------------------------- cancelled and failing


def test_a_caller_that_is_cancelled_leaves_the_others_undisturbed():
    held = Held()

    async def one_leaves() -> list[str]:
        sampling = JoinedSampling(held)
        callers = [asyncio.create_task(sampling.draw(prompt(1), PARAMS)) for _ in range(3)]
        await turns()
        callers[1].cancel()
        await turns()
        held.let_go()
        first, third = await callers[0], await callers[2]
        assert callers[1].cancelled()
        return [first.sequence.sequence_id, third.sequence.sequence_id]

    assert run(one_leaves()) == ["0", "2"]  # the second sequence is nobody's
    assert [count for _, count, _ in held.asked] == [3]


def test_a_caller_that_is_cancelled_before_the_request_left_is_not_sampled_for():
    held = Held()

    async def one_leaves() -> None:
        slots = RequestSlots(1)
        sampling = JoinedSampling(held, slots)
        async with slots.one():
            callers = [asyncio.create_task(sampling.draw(prompt(1), PARAMS)) for _ in range(3)]
            await turns()
            callers[0].cancel()
            await turns()
        await turns()
        held.let_go()
        await asyncio.gather(*callers[1:])

    run(one_leaves())
    assert [count for _, count, _ in held.asked] == [2]


def test_when_all_callers_are_gone_nobody_waits_for_the_request():
    held, slots = Held(), RequestSlots(1)

    async def all_leave() -> None:
        sampling = JoinedSampling(held, slots)
        callers = [asyncio.create_task(sampling.draw(prompt(1), PARAMS)) for _ in range(2)]
        await turns()
        assert slots.in_flight == 1
        for caller in callers:
            caller.cancel()
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(all_leave())
    assert slots.in_flight == 0


def test_an_error_reaches_every_caller_of_its_request_and_no_other():
    def fail(call: Call) -> Exception | None:
        is_sample = call.name == "sample" and call.arguments["prompt"].to_ints() == [1]
        return ConnectionError("gone") if is_sample else None

    async def three() -> list[Any]:
        sampling = joined(FakeService(fail=fail))
        work = (sampling.draw(prompt(token), PARAMS) for token in (1, 1, 2))
        return await asyncio.gather(*work, return_exceptions=True)

    first, second, other = run(three())
    assert str(first) == str(second) == "gone"
    assert isinstance(other, Drawn)


def test_an_answer_with_too_few_sequences_is_an_error_and_no_silence():
    class Stingy(Held):
        def sample(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
            return super().sample(prompt, num_samples - 1, sampling_params)

    held = Stingy()

    async def two() -> list[Any]:
        sampling = JoinedSampling(held)
        work = asyncio.gather(
            *(sampling.draw(prompt(1), PARAMS) for _ in range(2)), return_exceptions=True
        )
        await turns()
        held.let_go()
        return await work

    assert isinstance(run(two())[1], ValueError)


def test_a_request_that_is_cancelled_from_within_ends_its_callers():
    held = Held()

    async def cancelled() -> list[Any]:
        sampling = JoinedSampling(held)
        work = asyncio.gather(
            *(sampling.draw(prompt(1), PARAMS) for _ in range(2)), return_exceptions=True
        )
        await turns()
        held.asked[0][2].cancel()
        return await work

    assert [type(one) for one in run(cancelled())] == [asyncio.CancelledError] * 2


def test_one_object_serves_several_event_loops_one_after_the_other():
    service = FakeService()
    sampling = joined(service, RequestSlots(1))

    async def leaves_one_behind() -> None:
        task = asyncio.create_task(sampling.draw(prompt(1), PARAMS))
        await asyncio.sleep(0)
        task.cancel()

    async def two() -> None:
        await asyncio.gather(*(sampling.draw(prompt(token), PARAMS) for token in (2, 3)))

    run(leaves_one_behind())
    run(two())
    run(two())
    assert samples(service)[-4:] == [([2], 1), ([3], 1)] * 2


# -------------------------------------------------------------------- slots


def test_only_so_many_requests_are_out_at_once_and_all_get_their_turn():
    service = FakeService(latency_s=0.002)

    async def ten() -> None:
        sampling = joined(service, RequestSlots(3))
        await asyncio.gather(*(sampling.draw(prompt(n), PARAMS) for n in range(10)))

    run(ten())
    assert service.most_samples_in_flight == 3
    assert [tokens for tokens, _ in samples(service)] == [[n] for n in range(10)]


def test_a_slot_that_was_handed_over_to_somebody_who_left_goes_on():
    async def handed_over() -> int:
        slots = RequestSlots(1)

        async def hold() -> None:
            async with slots.one():
                await asyncio.sleep(0)

        async with slots.one():
            leaver, next_one = asyncio.create_task(hold()), asyncio.create_task(hold())
            await turns()
        leaver.cancel()  # it has the slot, and does not know yet
        await next_one
        return slots.in_flight

    assert run(handed_over()) == 0


def test_a_bound_that_lets_nothing_out_is_refused():
    with pytest.raises(ValueError, match="limit=0"):
        RequestSlots(0)
