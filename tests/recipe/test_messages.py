"""Messages as plain dicts: what they say, their parts, and how they look as JSON and elsewhere."""

import json
from typing import Any

import pytest

from mint.recipe.exceptions import DataFormatError
from mint.recipe.messages import (
    Content,
    FunctionBody,
    Message,
    ThinkingPart,
    ToolCall,
    UnparsedToolCall,
    content_to_jsonable,
    ensure_list,
    ensure_text,
    format_content_as_string,
    get_text_content,
    has_thinking,
    message_to_jsonable,
    remove_thinking,
    tool_calls_of,
)
from mint.recipe.renderers.openai import as_openai_message

PARTS: Content = [
    {"type": "thinking", "thinking": "hm"},
    {"type": "text", "text": "4"},
    {"type": "image", "image": "x.png"},
    {"type": "text", "text": "!"},
]
CALL = ToolCall(function=FunctionBody(name="f", arguments='{"a": 1}'), id="c1")


def said(content: Content, **more: Any) -> Message:
    return Message(role="assistant", content=content, **more)


def test_what_is_said_is_the_text_without_reasoning():
    assert get_text_content(said(PARTS)) == "4!"
    assert get_text_content(said("4!")) == "4!"


def test_joining_the_texts_of_all_parts_leaves_reasoning_out():
    part = ThinkingPart(type="thinking", thinking="hm")
    assert "".join(p.get("text", "") for p in [part, *ensure_list("4")]) == "4"


def test_people_see_every_part_in_its_order():
    assert format_content_as_string(PARTS) == "<think>hm</think>\n4\n<image>\n!"
    assert format_content_as_string(PARTS, separator=" ") == "<think>hm</think> 4 <image> !"
    assert format_content_as_string("4") == "4"


def test_reasoning_can_be_seen_and_taken_out():
    assert has_thinking(PARTS)
    without = remove_thinking(ensure_list(PARTS))
    assert not has_thinking(without)
    assert [part["type"] for part in without] == ["text", "image", "text"]
    assert not has_thinking("<think>")


def test_content_that_has_to_be_text_says_what_else_it_has():
    assert ensure_text("a") == ensure_text([{"type": "text", "text": "a"}]) == "a"
    with pytest.raises(DataFormatError, match="thinking, text, image, text"):
        ensure_text(PARTS)
    with pytest.raises(DataFormatError, match="none"):
        ensure_text([])


def test_tool_calls_are_read_as_objects_and_as_the_chat_api_writes_them():
    plain: Any = {
        "type": "function",
        "id": "c1",
        "function": {"name": "f", "arguments": '{"a": 1}'},
    }
    assert tool_calls_of(said("", tool_calls=[CALL, plain])) == [CALL, CALL]
    assert tool_calls_of(said("")) == []
    assert ToolCall.FunctionBody is FunctionBody
    broken: Any = {"name": "f"}
    with pytest.raises(DataFormatError, match='needs "function"'):
        tool_calls_of(said("", tool_calls=[broken]))


def test_a_message_becomes_json_with_everything_in_it():
    message = said(
        PARTS, tool_calls=[CALL], unparsed_tool_calls=[UnparsedToolCall(raw_text="{", error="cut")]
    )
    plain = json.loads(json.dumps(message_to_jsonable(message)))
    assert plain["content"] == PARTS
    assert plain["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert plain["unparsed_tool_calls"] == [{"raw_text": "{", "error": "cut"}]


def test_media_become_text_in_json():
    class Picture:
        def save(self, file, format: str) -> None:
            file.write(b"png")

    content: Content = [
        {"type": "image", "image": Picture()},
        {"type": "audio", "audio": b"wav"},
    ]
    assert content_to_jsonable(content) == [
        {"type": "image", "image": "data:image/png;base64,cG5n"},
        {"type": "audio", "audio": "d2F2"},
    ]


def test_the_chat_api_gets_reasoning_calls_and_names_under_its_own_keys():
    assert as_openai_message(said("4", tool_calls=[CALL], name="ann")) == {
        "role": "assistant",
        "content": "4",
        "name": "ann",
        "tool_calls": [
            {"type": "function", "id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}
        ],
    }
    assert as_openai_message(Message(role="tool", content="17", tool_call_id="c1")) == {
        "role": "tool",
        "content": "17",
        "tool_call_id": "c1",
    }
    media = as_openai_message(said(PARTS))
    assert media["reasoning_content"] == "hm"
    assert media["content"] == [
        {"type": "text", "text": "4"},
        {"type": "image_url", "image_url": {"url": "x.png"}},
        {"type": "text", "text": "!"},
    ]
