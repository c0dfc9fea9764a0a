"""Qwen3.5: a response begins inside the think block that the prompt opened."""

import pytest
from tests.recipe.renderers.conversations import PARIS, assistant, system, tool, user
from tests.recipe.tokens import ByteTokenizer

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message, TextPart, ThinkingPart, get_text_content
from mint.recipe.renderers.base import ParseTermination, Renderer
from mint.recipe.renderers.qwen3_5 import Qwen35DisableThinkingRenderer, Qwen35Renderer
from mint.recipe.renderers.streaming import StreamingTextDelta, StreamingThinkingDelta

TOKENIZER = ByteTokenizer()


def thinking() -> Qwen35Renderer:
    return Qwen35Renderer(TOKENIZER)


def disabled() -> Qwen35DisableThinkingRenderer:
    return Qwen35DisableThinkingRenderer(TOKENIZER)


def split(renderer: Renderer, messages: list[Message], what: str) -> tuple[str, str]:
    """The text before the first trained token, and from there on."""
    example, weights = renderer.weighted_example(messages, what)
    first = weights.tolist().index(1.0)
    tokens = example.to_ints()
    return TOKENIZER.decode(tokens[:first]), TOKENIZER.decode(tokens[first:])


def test_the_opened_block_is_supplied_and_what_follows_is_trained():
    before, after = split(thinking(), [user("u"), assistant("a", thinking="t")], "all_messages")
    assert before == "<|im_start|>user\n"
    assert after == ("u<|im_end|>\n<|im_start|>assistant\n<think>\nt\n</think>\n\na<|im_end|>")
    before, after = split(
        thinking(), [user("u"), assistant("a", thinking="t")], "all_assistant_messages"
    )
    assert before.endswith("<|im_start|>assistant\n<think>\n")
    assert after == "t\n</think>\n\na<|im_end|>"


def test_without_thinking_the_whole_block_is_supplied():
    before, after = split(disabled(), [user("u"), assistant("a")], "all_assistant_messages")
    assert before.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert after == "a<|im_end|>"


def test_every_turn_after_the_last_user_message_keeps_its_block():
    messages = [user("u"), assistant("", thinking="t", calls=[PARIS]), tool("17")]
    text = TOKENIZER.decode(thinking().build_generation_prompt(messages).to_ints())
    assert text.count("<think>") == 2  # the turn that called, and the one to come
    text = TOKENIZER.decode(thinking().build_generation_prompt([*messages, user("v")]).to_ints())
    assert text.count("<think>") == 1


def test_white_space_around_contents_is_dropped():
    text = TOKENIZER.decode(
        thinking().build_generation_prompt([system(" s\n"), user("\nu ")]).to_ints()
    )
    assert text.startswith("<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n")


def test_a_later_system_message_is_refused_as_the_template_does():
    with pytest.raises(RendererError, match=r"messages\[1\] is a system message"):
        thinking().build_generation_prompt([user("u"), system("s")])


def test_training_reasoning_is_refused_where_the_prompt_switches_it_off():
    with pytest.raises(RendererError, match=r"messages\[1\] has reasoning"):
        disabled().weighted_example([user("u"), assistant("a", thinking="t")])


def test_a_response_begins_inside_the_block():
    message, termination = thinking().parse_response(
        TOKENIZER.encode("so 42\n</think>\n\n42<|im_end|>")
    )
    assert termination is ParseTermination.STOP_SEQUENCE
    assert message["content"] == [
        ThinkingPart(type="thinking", thinking="so 42"),
        TextPart(type="text", text="42"),
    ]


def test_a_response_that_never_leaves_the_block_says_nothing():
    message, termination = thinking().parse_response(TOKENIZER.encode("so 42 perhaps"))
    assert not termination
    assert message["content"] == [ThinkingPart(type="thinking", thinking="so 42 perhaps")]
    assert get_text_content(message) == ""


def test_without_thinking_a_response_is_text_from_the_start():
    message, _ = disabled().parse_response(TOKENIZER.encode("42<|im_end|>"))
    assert message["content"] == "42"


def test_reasoning_arrives_first_although_no_tag_opens_it():
    response = TOKENIZER.encode("so\n</think>\n\n42<|im_end|>")
    _, *pieces, whole = thinking().parse_response_streaming(response)
    thought = [p.thinking for p in pieces if isinstance(p, StreamingThinkingDelta)]
    said = [p.text for p in pieces if isinstance(p, StreamingTextDelta)]
    assert ("".join(thought), "".join(said)) == ("so", "42")
    assert whole == thinking().parse_response(response)[0]
