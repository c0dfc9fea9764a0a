"""What holds for every renderer of Qwen's, with reasoning, with it switched off, and without any."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recipe.renderers.conversations import conversations, user, without_reasoning
from tests.recipe.tokens import ID, ByteTokenizer

from mint.recipe.messages import Message
from mint.recipe.renderers.base import ParseTermination
from mint.recipe.renderers.qwen3 import (
    Qwen3DisableThinkingRenderer,
    Qwen3InstructRenderer,
    Qwen3Renderer,
)
from mint.recipe.renderers.qwen3_5 import Qwen35DisableThinkingRenderer, Qwen35Renderer

TOKENIZER = ByteTokenizer()
END = ID["<|im_end|>"]
THINKING = [Qwen3Renderer, Qwen35Renderer]
NOT_THINKING = [Qwen3DisableThinkingRenderer, Qwen35DisableThinkingRenderer]
some = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("family", [*THINKING, *NOT_THINKING])
@some
@given(messages=conversations(ends_with_answer=True))
def test_prompt_and_completion_make_the_example(family, messages: list[Message]):
    renderer = family(TOKENIZER)
    if family in NOT_THINKING:
        messages = [without_reasoning(message) for message in messages]
    example, weights = renderer.weighted_example(messages)
    tokens = example.to_ints()
    asked = renderer.build_generation_prompt(messages[:-1]).to_ints()

    assert tokens[: len(asked)] == asked
    assert weights.tolist() == [0.0] * len(asked) + [1.0] * (len(tokens) - len(asked))


@pytest.mark.parametrize("family", THINKING)
@some
@given(messages=conversations(ends_with_answer=True))
def test_a_parsed_response_is_rendered_as_the_message_was(family, messages: list[Message]):
    renderer = family(TOKENIZER)
    asked = renderer.build_generation_prompt(messages[:-1]).to_ints()
    whole = renderer.weighted_example(messages)[0].to_ints()

    message, termination = renderer.parse_response(whole[len(asked) :])

    assert termination is ParseTermination.STOP_SEQUENCE
    assert renderer.weighted_example([*messages[:-1], message])[0].to_ints() == whole


@pytest.mark.parametrize("family", [*THINKING, *NOT_THINKING, Qwen3InstructRenderer])
@some
@given(tokens=st.lists(st.integers(0, 255) | st.integers(min(ID.values()), max(ID.values()))))
def test_no_sampled_tokens_are_too_strange_to_be_read(family, tokens: list[int]):
    renderer = family(TOKENIZER)
    message, termination = renderer.parse_response(tokens)
    assert message["role"] == "assistant"
    assert termination.is_clean == (tokens.count(END) == 1)
    *_, whole = renderer.parse_response_streaming(tokens)
    assert whole == message
    renderer.build_generation_prompt([user("u"), message, user("v")])  # and can be history
