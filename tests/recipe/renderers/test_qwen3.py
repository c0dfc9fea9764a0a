"""Qwen3's three renderers: what is trained, what a response says, and turns that follow."""

import logging
import pickle

import pytest
from hypothesis import given, settings
from tests.recipe.renderers.conversations import (
    PARIS,
    assistant,
    conversations,
    system,
    tool,
    user,
    without_reasoning,
)
from tests.recipe.tokens import ID, ByteTokenizer
from tinker import EncodedTextChunk, ModelInput

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message, TextPart, ThinkingPart, get_text_content
from mint.recipe.renderers.base import ParseTermination, Renderer, TrainOnWhat
from mint.recipe.renderers.qwen3 import (
    Qwen3DisableThinkingRenderer,
    Qwen3InstructRenderer,
    Qwen3Renderer,
)
from mint.recipe.renderers.streaming import (
    StreamingMessageHeader,
    StreamingTextDelta,
    StreamingThinkingDelta,
)

TOKENIZER = ByteTokenizer()
END = ID["<|im_end|>"]

TWO_TURNS = [
    system("s"),
    user("u1"),
    assistant("a1", thinking="t1"),
    user("u2"),
    assistant("a2", thinking="t2"),
]


def qwen3() -> Qwen3Renderer:
    return Qwen3Renderer(TOKENIZER)


def disabled() -> Qwen3DisableThinkingRenderer:
    return Qwen3DisableThinkingRenderer(TOKENIZER)


def instruct() -> Qwen3InstructRenderer:
    return Qwen3InstructRenderer(TOKENIZER)


def prompt(renderer: Renderer, messages: list[Message], **options) -> str:
    return TOKENIZER.decode(renderer.build_generation_prompt(messages, **options).to_ints())


def trained(renderer: Renderer, messages: list[Message], what: str) -> str:
    """The text of the tokens with weight 1; "|" where others lie between."""
    example, weights = renderer.weighted_example(messages, what)
    tokens = example.to_ints()
    assert len(tokens) == len(weights)
    parts = [[]]
    for number, weight in zip(tokens, weights, strict=True):
        if weight:
            parts[-1].append(number)
        elif parts[-1]:
            parts.append([])
    return "|".join(TOKENIZER.decode(part) for part in parts if part)


def response(text: str) -> list[int]:
    return TOKENIZER.encode(text)


# ------------------------------------------------------------------ prompts


def test_an_empty_conversation_asks_for_a_first_message():
    assert prompt(qwen3(), []) == "<|im_start|>assistant\n"
    assert prompt(disabled(), []) == "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert prompt(instruct(), []) == "<|im_start|>assistant\n"


def test_another_role_can_be_asked_for():
    assert prompt(disabled(), [user("u")], role="user") == (
        "<|im_start|>user\nu<|im_end|>\n<|im_start|>user\n"
    )


def test_a_prefill_follows_what_the_prompt_supplies():
    assert prompt(disabled(), [], prefill="Sure") == (
        "<|im_start|>assistant\n<think>\n\n</think>\n\nSure"
    )


def test_markup_in_what_somebody_says_stays_text():
    tokens = qwen3().build_generation_prompt([user("<|im_end|>")]).to_ints()
    assert tokens.count(END) == 1


def test_a_prompt_is_one_chunk_and_none_is_empty():
    for messages in ([], TWO_TURNS[:4], [user(""), assistant(""), user("")]):
        chunks = qwen3().build_generation_prompt(messages).chunks
        assert [chunk.length > 0 for chunk in chunks] == [True]


def test_the_stop_is_the_id_of_the_end_of_turn():
    assert qwen3().get_stop_sequences() == [END]


def test_a_part_that_is_no_text_is_refused_by_its_type():
    picture = Message(role="user", content=[{"type": "image", "image": "http://x/y.png"}])
    with pytest.raises(RendererError, match="user message has a part of type 'image'"):
        qwen3().build_generation_prompt([picture])


def test_a_tokenizer_without_the_family_s_tokens_is_refused():
    class Letters(ByteTokenizer):
        def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
            return list(text.encode())

    with pytest.raises(RendererError, match=r"no single token '<\|im_end\|>'"):
        Qwen3Renderer(Letters())


# ------------------------------------------------------------- what is trained


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("last_assistant_message", "<think>\nt2\n</think>\n\na2<|im_end|>"),
        ("last_assistant_turn", "<think>\nt2\n</think>\n\na2<|im_end|>"),
        ("all_assistant_messages", "a1<|im_end|>|<think>\nt2\n</think>\n\na2<|im_end|>"),
        (
            "all_messages",
            "s<|im_end|>|u1<|im_end|>|a1<|im_end|>|u2<|im_end|>|<think>\nt2\n</think>\n\na2<|im_end|>",
        ),
        ("all_user_and_system_messages", "s<|im_end|>|u1<|im_end|>|u2<|im_end|>"),
    ],
)
def test_outputs_are_trained_and_headers_are_not(what: str, expected: str):
    assert trained(qwen3(), TWO_TURNS, what) == expected


def test_all_tokens_trains_headers_too():
    example, weights = qwen3().weighted_example(TWO_TURNS, TrainOnWhat.ALL_TOKENS)
    assert weights.tolist() == [1.0] * example.length


def test_customized_trains_what_is_marked():
    marked: list[Message] = [{**m, "trainable": i in (1, 2)} for i, m in enumerate(TWO_TURNS)]  # pyright: ignore
    assert trained(qwen3(), marked, "customized") == "u1<|im_end|>|a1<|im_end|>"


def test_an_answer_without_reasoning_is_trained_with_its_empty_block():
    # the prompt does not supply it: the model has to write it
    assert trained(qwen3(), [user("u"), assistant("a")], "all_assistant_messages") == (
        "<think>\n\n</think>\n\na<|im_end|>"
    )


@pytest.mark.parametrize(
    "what",
    ["last_assistant_message", "last_assistant_turn", "all_assistant_messages", "all_messages"],
)
def test_a_block_that_the_prompt_supplies_is_trained_under_no_mode(what: str):
    assert trained(disabled(), [user("u"), assistant("a")], what).endswith("a<|im_end|>")
    assert "<think>" not in trained(disabled(), [user("u"), assistant("a")], what)


def test_every_turn_of_several_examples_sees_the_context_it_is_sampled_in():
    examples = disabled().weighted_examples(
        [user("u1"), assistant("a1"), user("u2"), assistant("a2")], "all_assistant_messages"
    )
    texts = [TOKENIZER.decode(example.to_ints()) for example, _ in examples]
    assert texts == [
        "<|im_start|>user\nu1<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\na1<|im_end|>",
        "<|im_start|>user\nu1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n"
        "<|im_start|>user\nu2<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\na2<|im_end|>",
    ]
    assert [int(weights.sum()) for _, weights in examples] == [3, 3]  # two letters and the end


def test_training_reasoning_is_refused_where_the_prompt_switches_it_off():
    thought = [user("u"), assistant("a", thinking="t")]
    for refuse in (
        lambda: disabled().weighted_example(thought),
        lambda: disabled().weighted_examples(thought),
        lambda: disabled().build_supervised_example([user("u"), assistant("<think>t</think>a")]),
    ):
        with pytest.raises(RendererError, match=r"messages\[1\] has reasoning"):
            refuse()


def test_reasoning_in_history_is_no_reason_to_refuse():
    messages = [user("u1"), assistant("a1", thinking="t"), user("u2"), assistant("a2")]
    assert trained(disabled(), messages, "all_assistant_messages") == "a1<|im_end|>|a2<|im_end|>"


def test_a_prompt_with_reasoning_is_written_all_the_same():
    # the model reasoned although it was told not to, and then called a tool: the run goes on
    messages = [user("u"), assistant("", thinking="t", calls=[PARIS]), tool("17")]
    assert "<think>\nt\n</think>" in prompt(disabled(), messages)


def test_instruct_refuses_reasoning_since_it_has_no_place_for_it():
    with pytest.raises(RendererError, match=r"part of type 'thinking'"):
        instruct().build_generation_prompt([user("u"), assistant("a", thinking="t"), user("v")])


# ------------------------------------------------------------------ parsing


def test_a_response_is_read_up_to_its_end():
    message, termination = qwen3().parse_response(response("hi<|im_end|>"))
    assert message == {"role": "assistant", "content": "hi"}
    assert termination is ParseTermination.STOP_SEQUENCE


def test_reasoning_becomes_a_part_of_its_own():
    message, _ = qwen3().parse_response(response("<think>\nhm\n</think>\n\n42<|im_end|>"))
    assert message["content"] == [
        ThinkingPart(type="thinking", thinking="hm"),
        TextPart(type="text", text="42"),
    ]
    assert get_text_content(message) == "42"


def test_an_empty_block_leaves_plain_text():
    message, _ = qwen3().parse_response(response("<think>\n\n</think>\n\n42<|im_end|>"))
    assert message["content"] == "42"


@pytest.mark.parametrize("text", ["hi", "", "<think>\nstill thinking 42"])
def test_a_cut_response_is_malformed_and_says_what_it_can(text: str):
    message, termination = qwen3().parse_response(response(text))
    assert termination is ParseTermination.MALFORMED
    assert not termination  # as older code asks
    assert get_text_content(message) == ("" if "think" in text else text)


def test_a_block_that_never_closes_is_reasoning_to_its_end():
    message, _ = qwen3().parse_response(response("<think>\nis it 42?<|im_end|>"))
    assert message["content"] == [ThinkingPart(type="thinking", thinking="is it 42?")]


def test_a_response_that_ends_twice_is_cut_at_the_first_and_logged_once(caplog):
    renderer = qwen3()
    with caplog.at_level(logging.WARNING, "mint.recipe"):
        for _ in range(3):
            message, termination = renderer.parse_response(response("a<|im_end|>b<|im_end|>"))
            assert message["content"] == "a"
            assert termination is ParseTermination.MALFORMED
    assert len(caplog.records) == 1
    assert "ends 2 times" in caplog.records[0].getMessage()


def test_bytes_that_are_no_text_raise_nothing():
    message, _ = qwen3().parse_response([0xFF, 0xC3, END])
    assert message["content"] == "��"


def test_instruct_takes_a_block_for_text():
    message, _ = instruct().parse_response(response("<think>a</think>b<|im_end|>"))
    assert message["content"] == "<think>a</think>b"


# --------------------------------------------------------------- streaming


def test_a_response_arrives_piece_by_piece():
    whole = "<think>\nab\n</think>\n\ncd<|im_end|>"
    *pieces, message = qwen3().parse_response_streaming(response(whole))

    assert pieces[0] == StreamingMessageHeader(role="assistant")
    thoughts = [piece for piece in pieces if isinstance(piece, StreamingThinkingDelta)]
    said = [piece for piece in pieces if isinstance(piece, StreamingTextDelta)]
    assert pieces == [pieces[0], *thoughts, *said]
    assert [piece.thinking for piece in thoughts] == ["a", "b"]
    assert [(piece.text, piece.content_index) for piece in said] == [("c", 1), ("d", 1)]
    assert message == qwen3().parse_response(response(whole))[0]


def test_instruct_streams_a_block_as_text():
    *pieces, _ = instruct().parse_response_streaming(response("<think>a</think>b<|im_end|>"))
    said = "".join(piece.text for piece in pieces if isinstance(piece, StreamingTextDelta))
    assert said == "<think>a</think>b"


@settings(max_examples=40, deadline=None)
@given(messages=conversations(ends_with_answer=False))
def test_the_pieces_add_up_to_the_message(messages: list[Message]):
    for renderer in (qwen3(), disabled()):
        for message in messages:
            text = get_text_content(message) + "<|im_end|>"
            *pieces, whole = renderer.parse_response_streaming(response(text))
            said = "".join(p.text for p in pieces if isinstance(p, StreamingTextDelta))
            assert isinstance(whole, dict)
            assert said == get_text_content(whole)


# ----------------------------------------------------------- further turns


def test_only_instruct_leaves_history_alone():
    assert [r.has_extension_property for r in (qwen3(), disabled(), instruct())] == [
        False, False, True,
    ]  # fmt: skip
    with pytest.raises(NotImplementedError, match="rewrites earlier turns"):
        qwen3().bridge(ModelInput.empty(), [user("u")])


@settings(max_examples=40, deadline=None)
@given(messages=conversations(ends_with_answer=False))
def test_bridging_is_rendering_anew_without_touching_what_was_sampled(messages: list[Message]):
    renderer = instruct()
    messages = [without_reasoning(message) for message in messages]
    for k, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        sampled = renderer.weighted_example(messages[: k + 1])[0]
        following = messages[k + 1 :]
        upto = next(
            (i for i, m in enumerate(following) if m["role"] == "assistant"), len(following)
        )
        bridged = renderer.bridge(sampled, following[:upto]).to_ints()

        assert bridged[: sampled.length] == sampled.to_ints()
        anew = renderer.build_generation_prompt(messages[: k + 1 + upto]).to_ints()
        assert bridged == anew


def test_a_cut_turn_is_ended_before_the_next():
    renderer = instruct()
    asked = renderer.build_generation_prompt([user("u")])
    cut = ModelInput(chunks=[*asked.chunks, EncodedTextChunk(tokens=response("half a se"))])
    text = TOKENIZER.decode(renderer.bridge(cut, [user("go on")]).to_ints())
    assert text.endswith(
        "half a se<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_renderer_that_nobody_registered_does_not_pickle():
    with pytest.raises(RendererError, match="get_renderer"):
        pickle.dumps(qwen3())
