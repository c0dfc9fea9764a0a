"""Calls as the models write them, and as they should not be written."""

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.renderers.conversations import PARIS, call, user
from tests.recipe.tokens import ByteTokenizer

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import FunctionBody, Message, ToolCall, UnparsedToolCall
from mint.recipe.renderers.qwen3 import (
    Qwen3DisableThinkingRenderer,
    Qwen3InstructRenderer,
    Qwen3Renderer,
)
from mint.recipe.renderers.qwen3_5 import Qwen35DisableThinkingRenderer
from mint.recipe.renderers.streaming import StreamingTextDelta
from mint.recipe.renderers.tool_calls import JsonCalls, TaggedCalls, ToolDialect

TOKENIZER = ByteTokenizer()
PARIS_AS_JSON = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
)
PARIS_IN_TAGS = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"
)


def parsed(text: str) -> Message:
    return Qwen3Renderer(TOKENIZER).parse_response(TOKENIZER.encode(text + "<|im_end|>"))[0]


def arguments(call: ToolCall):
    return json.loads(call.function.arguments)


# ------------------------------------------------------------------ reading


@pytest.mark.parametrize(
    ("dialect", "text"), [(JsonCalls(), PARIS_AS_JSON), (TaggedCalls(), PARIS_IN_TAGS)]
)
def test_a_call_is_read_as_it_is_written(dialect: ToolDialect, text: str):
    found = dialect.find(text)
    assert found.calls == [PARIS]
    assert (found.text, found.unparsed) == ("", [])
    assert text == f"<tool_call>\n{dialect.written(PARIS)}\n</tool_call>"


def test_what_is_said_before_a_call_is_text_without_the_line_break():
    message = parsed(f"Let me look.\n{PARIS_AS_JSON}\n{PARIS_AS_JSON}")
    assert message["content"] == "Let me look."
    assert message.get("tool_calls") == [PARIS, PARIS]


def test_a_message_without_calls_has_no_such_key():
    assert parsed("hi").keys() == {"role", "content"}


def test_calls_come_after_reasoning():
    message = parsed(f"<think>\nhm\n</think>\n\n{PARIS_AS_JSON}")
    assert message["content"] == [{"type": "thinking", "thinking": "hm"}]
    assert message.get("tool_calls") == [PARIS]


def test_a_call_inside_reasoning_is_no_call():
    message = parsed(f"<think>\n{PARIS_AS_JSON}\n</think>\n\nno")
    assert "tool_calls" not in message


@pytest.mark.parametrize(
    ("inside", "error"),
    [
        ("\nnot json\n", "Expecting value"),
        ('\n["name"]\n', 'no JSON object with a "name"'),
        ('\n{"arguments": {}}\n', 'no JSON object with a "name"'),
        ('\n{"name": "f", "arguments": [1]}\n', '"arguments" is no JSON object but list'),
        ('\n{"name": "f", "arguments": {"x": NaN}}\n', "NaN is no JSON"),
        ("\n" + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_call_that_cannot_be_read_is_kept_as_it_was_written(inside: str, error: str):
    message = parsed(f"see <tool_call>{inside}</tool_call>")
    assert "tool_calls" not in message
    assert message["content"] == "see"
    (unparsed,) = message.get("unparsed_tool_calls") or []
    assert unparsed.raw_text == f"<tool_call>{inside}</tool_call>"
    assert error in unparsed.error


def test_a_call_cut_off_is_kept_too():
    text = TOKENIZER.encode('<tool_call>\n{"name": "f"')
    message, termination = Qwen3Renderer(TOKENIZER).parse_response(text)
    assert not termination
    assert message.get("unparsed_tool_calls") == [
        UnparsedToolCall(
            raw_text='<tool_call>\n{"name": "f"', error="it has no closing </tool_call>"
        )
    ]


def test_one_bad_call_leaves_its_neighbour_alone():
    message = parsed(f"<tool_call>\n?\n</tool_call>\n{PARIS_AS_JSON}")
    assert message.get("tool_calls") == [PARIS]
    assert len(message.get("unparsed_tool_calls") or []) == 1


def test_arguments_left_out_are_none_and_arguments_in_a_string_are_read():
    (bare, quoted) = (
        JsonCalls()
        .find(
            '<tool_call>{"name": "f"}</tool_call>'
            '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>'
        )
        .calls
    )
    assert (arguments(bare), arguments(quoted)) == ({}, {"a": 1})


def test_values_in_tags_get_the_type_they_read_as():
    text = "".join(
        f"<parameter={name}>\n{value}\n</parameter>\n"
        for name, value in {
            "n": "2", "x": "2.5", "t": "True", "j": "false", "z": "None", "l": "[1, 2]",
            "o": '{"a": "b"}', "s": "two\nlines", "q": '"quoted"', "nan": "NaN", "e": "",
        }.items()
    )  # fmt: skip
    (found,) = (
        TaggedCalls().find(f"<tool_call>\n<function=f>\n{text}</function>\n</tool_call>").calls
    )
    assert arguments(found) == {
        "n": 2, "x": 2.5, "t": True, "j": False, "z": None, "l": [1, 2],
        "o": {"a": "b"}, "s": "two\nlines", "q": '"quoted"', "nan": "NaN", "e": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("inside", "error"),
    [
        ('{"name": "f"}', "no <function=name>"),
        ("<function=f>\n<parameter=a>\n1\n</function>", "text outside of <parameter"),
        ("<function=f>\nhello\n</function>", "text outside of <parameter"),
    ],
)
def test_tags_that_do_not_fit_are_kept_as_they_were_written(inside: str, error: str):
    (unparsed,) = TaggedCalls().find(f"<tool_call>{inside}</tool_call>").unparsed
    assert error in unparsed.error


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,6}", fullmatch=True),
        st.integers() | st.booleans() | st.none() | st.lists(st.integers(), max_size=3)
        | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
        max_size=3,
    )
)  # fmt: skip
def test_what_both_dialects_write_they_read_back(values: dict[str, object]):
    for dialect in (JsonCalls(), TaggedCalls()):
        given_call = call("f", **values)
        text = f"<tool_call>\n{dialect.written(given_call)}\n</tool_call>"
        assert dialect.find(text).calls == [given_call]


@given(st.text())
def test_no_text_makes_the_reader_raise(text: str):
    for dialect in (JsonCalls(), TaggedCalls()):
        dialect.find(text)
        dialect.find(f"<tool_call>{text}</tool_call>")


# ------------------------------------------------------------------ writing


def test_arguments_in_json_are_written_letter_by_letter():
    spaced = ToolCall(function=FunctionBody(name="f", arguments='{"a":1 }'))
    assert JsonCalls().written(spaced) == '{"name": "f", "arguments": {"a":1 }}'


def test_tags_need_an_object():
    for text in ("[1]", "nonsense"):
        listed = ToolCall(function=FunctionBody(name="f", arguments=text))
        with pytest.raises(RendererError, match="'f' are no JSON object"):
            TaggedCalls().written(listed)


@pytest.mark.parametrize("family", [Qwen3Renderer, Qwen35DisableThinkingRenderer])
def test_a_call_that_could_not_be_read_goes_into_history_as_it_was(family):
    renderer = family(TOKENIZER)
    raw = "<tool_call>\n?\n</tool_call>"
    asked = renderer.parse_response(TOKENIZER.encode(f"Hm.\n{raw}<|im_end|>"))[0]
    text = TOKENIZER.decode(
        renderer.build_generation_prompt([user("u"), asked, user("Again, please.")]).to_ints()
    )
    between = renderer.tools.before_first_call
    assert f"<|im_start|>assistant\nHm.{between}{raw}<|im_end|>\n" in text


def test_calls_may_come_as_the_chat_api_has_them():
    function = {"name": "get_weather", "arguments": PARIS.function.arguments}
    plain = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": function}],
    }
    message = cast(Message, plain)
    for family in (Qwen3InstructRenderer, Qwen3DisableThinkingRenderer):
        example, _ = family(TOKENIZER).weighted_example([user("u"), message])
        assert TOKENIZER.decode(example.to_ints()).endswith(f"{PARIS_AS_JSON}<|im_end|>")


# ---------------------------------------------------------------- streaming


def test_a_call_is_not_shown_as_text_while_it_arrives():
    response = TOKENIZER.encode(f"Let me look.\n{PARIS_AS_JSON}<|im_end|>")
    _, *pieces, whole = Qwen3Renderer(TOKENIZER).parse_response_streaming(response)
    said = "".join(piece.text for piece in pieces if isinstance(piece, StreamingTextDelta))
    assert said == "Let me look."
    assert isinstance(whole, dict)
    assert whole.get("tool_calls") == [PARIS]


# -------------------------------------------------------------------- tools


def test_without_tools_the_system_prompt_stands_alone():
    renderer = Qwen3Renderer(TOKENIZER)
    assert renderer.create_conversation_prefix_with_tools([], "Be kind.") == [
        {"role": "system", "content": "Be kind."}
    ]
    assert renderer.create_conversation_prefix_with_tools([]) == []
