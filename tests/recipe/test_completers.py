"""Completers over a sampling client: what they ask for, and what they make of the answer."""

import asyncio
import threading
from typing import Any

import pytest
from tests.recipe.fake_service import FakeService
from tests.recipe.tokens import ByteTokenizer

from mint import ModelInput, types
from mint.recipe.completers import (
    TinkerMessageCompleter,
    TinkerTokenCompleter,
    TokensWithLogprobs,
)
from mint.recipe.messages import Message
from mint.recipe.renderers.qwen3 import Qwen3Renderer

TOKENIZER = ByteTokenizer()
RENDERER = Qwen3Renderer(TOKENIZER)
PROMPT = ModelInput.from_ints([1, 2, 3])
HI: list[Message] = [{"role": "user", "content": "hi"}]


def saying(text: str, **settings: Any) -> FakeService:
    tokens = TOKENIZER.encode(text)
    return FakeService(lambda *_: (tokens, [-0.5] * len(tokens), "stop"), **settings)


def completed(service: FakeService, *, cap: int | None = None, **settings: Any) -> Any:
    client = service.create_sampling_client()
    completer = TinkerTokenCompleter(
        client.result() if service.sdk == "0.38" else client, **{"max_tokens": 8, **settings}
    )
    return asyncio.run(completer(PROMPT, [7], max_tokens=cap))


def params(service: FakeService) -> types.SamplingParams:
    return service.calls[-1].arguments["sampling_params"]


# ------------------------------------------------------------------- tokens


@pytest.mark.parametrize("sdk", ["0.22", "0.38"])
def test_a_completion_is_what_was_sampled(sdk: Any):
    service = FakeService(lambda *_: ([5, 6], [-0.25, -0.5], "length"), sdk=sdk)
    completion = completed(service, temperature=0.7)

    assert completion.tokens == [5, 6]
    assert completion.logprobs == [-0.25, -0.5]
    assert completion.stop_reason == "length"
    assert completion.sequence_id == "fake-1"
    assert (params(service).temperature, params(service).stop) == (0.7, [7])


@pytest.mark.parametrize(
    ("own", "call", "window", "asked"),
    [(8, None, None, 8), (8, 5, None, 5), (8, 20, None, 8), (8, 6, 7, 4), (8, None, 4, 1)],
)
def test_the_smallest_cap_counts(own: int, call: Any, window: Any, asked: int):
    service = FakeService()
    completed(service, cap=call, max_tokens=own, context_window=window)

    assert params(service).max_tokens == asked


def test_a_prompt_that_fills_the_window_gets_an_empty_completion_and_no_request():
    service = FakeService()
    completion = completed(service, context_window=3)

    assert completion == TokensWithLogprobs([], [], "length")
    assert service.called("sample") == []


def test_logprobs_that_are_missing_are_missed_where_they_are_needed():
    without = TokensWithLogprobs([1, 2], None)

    with pytest.raises(ValueError, match="2 tokens has no logprobs"):
        _ = without.logprobs


# ----------------------------------------------------------------- messages


def messages_of(service: FakeService, **settings: Any) -> TinkerMessageCompleter:
    return TinkerMessageCompleter(service.create_sampling_client().result(), RENDERER, **settings)


def test_a_conversation_is_answered_through_the_renderer():
    service = saying("hello<|im_end|>")
    answer = asyncio.run(messages_of(service)(HI))

    assert answer == {"role": "assistant", "content": "hello"}
    [call] = service.called("sample")
    assert call.arguments["prompt"] == RENDERER.build_generation_prompt(HI)
    asked = call.arguments["sampling_params"]
    assert (asked.max_tokens, asked.temperature) == (256, 1.0)
    assert asked.stop == RENDERER.get_stop_sequences()


def test_tool_calls_come_with_the_answer():
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>'
    answer = asyncio.run(messages_of(saying(call))(HI))

    [tool_call] = answer.get("tool_calls", [])
    assert tool_call.function.name == "add"


def test_another_stop_condition_comes_before_the_renderers():
    service = saying("hello")
    asyncio.run(messages_of(service, stop_condition=["!"])(HI))

    assert params(service).stop == ["!"]


def test_without_a_loop_an_answer_is_a_plain_call():
    service = saying("hello<|im_end|>")
    answer = messages_of(service, max_tokens=9, temperature=0.5).complete(HI)

    assert answer["content"] == "hello"
    assert (params(service).max_tokens, params(service).temperature) == (9, 0.5)


def test_a_plain_call_takes_parameters_and_single_fields_above_them():
    service = saying("hello<|im_end|>")
    given = types.SamplingParams(temperature=0.0, top_p=0.5)
    messages_of(service, max_tokens=9).complete(HI, given, top_p=0.9)

    asked = params(service)
    assert (asked.temperature, asked.top_p, asked.max_tokens) == (0.0, 0.9, 9)
    assert asked.stop == RENDERER.get_stop_sequences()


def test_a_plain_call_works_in_a_thread():
    answers: list[Message] = []
    completer = messages_of(saying("hello<|im_end|>"))
    thread = threading.Thread(target=lambda: answers.append(completer.complete(HI)))
    thread.start()
    thread.join()

    assert answers[0]["content"] == "hello"


def test_a_plain_call_inside_a_loop_says_what_to_do():
    async def inside() -> None:
        messages_of(saying("hello")).complete(HI)

    with pytest.raises(RuntimeError, match="await completer"):
        asyncio.run(inside())
