"""Conversations to compare renderers with templates: some by name, and as many as one likes."""

import json
import random
import re
from typing import Any

from hypothesis import strategies as st

from mint.recipe.messages import (
    FunctionBody,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolSpec,
    get_text_content,
)

WEATHER = ToolSpec(
    name="get_weather",
    description="Today's weather, in °C",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
CLOCK = ToolSpec(name="clock", description="", parameters={"type": "object", "properties": {}})


def system(text: str) -> Message:
    return Message(role="system", content=text)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def tool(text: str) -> Message:
    return Message(role="tool", content=text)


def assistant(text: str, *, thinking: str = "", calls: list[ToolCall] | None = None) -> Message:
    message = Message(role="assistant", content=text)
    if thinking:
        message["content"] = [
            ThinkingPart(type="thinking", thinking=thinking),
            TextPart(type="text", text=text),
        ]
    if calls:
        message["tool_calls"] = calls
    return message


def without_reasoning(message: Message) -> Message:
    return {**message, "content": get_text_content(message)}


def call(name: str, **arguments: Any) -> ToolCall:
    written = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(function=FunctionBody(name=name, arguments=written))


PARIS = call("get_weather", city="Paris", days=2)

NAMED: dict[str, list[Message]] = {
    "one question": [user("What is 2+2?")],
    "question and answer": [user("What is 2+2?"), assistant("4")],
    "system": [system("Answer in one word."), user("Sky?"), assistant("Blue.")],
    "empty contents": [system(""), user(""), assistant("")],
    "answer with reasoning": [user("2+2?"), assistant("4", thinking="Two and two.\nFour.")],
    "reasoning is dropped from history": [
        user("2+2?"),
        assistant("4", thinking="Two and two."),
        user("And 3+3?"),
        assistant("6", thinking="Three and three."),
        user("Sure?"),
    ],
    "history without reasoning": [user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
    "reasoning written as text": [user("a"), assistant("<think>\nhm\n</think>\n\nb")],
    "reasoning written as text, in history": [
        user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"), assistant("d"),
    ],
    "one call": [user("Weather?"), assistant("", calls=[PARIS])],
    "call after words": [user("Weather?"), assistant("Let me look.", calls=[PARIS])],
    "call after reasoning": [user("Weather?"), assistant("", thinking="Look.", calls=[PARIS])],
    "two calls": [
        user("Weather and time?"), assistant("Both.", calls=[PARIS, call("clock")]),
    ],
    "results share a turn": [
        user("Weather and time?"),
        assistant("", calls=[PARIS, call("clock")]),
        tool("17"),
        tool("12:00\nsharp"),
        assistant("17 °C at noon."),
    ],
    "a result asks for the answer": [user("W?"), assistant("", calls=[PARIS]), tool("17")],
    "reasoning is kept while tools are called": [
        user("Weather?"),
        assistant("", thinking="Look.", calls=[PARIS]),
        tool("17"),
        assistant("One moment.", thinking="And the time.", calls=[call("clock")]),
        tool("12"),
        assistant("17 at 12.", thinking="Done."),
    ],
    "a result that the user sends": [
        user("Weather?"),
        assistant("", thinking="Look.", calls=[PARIS]),
        user("<tool_response>\n17\n</tool_response>"),
    ],
    "tools in history": [
        user("Weather?"),
        assistant("", thinking="Look.", calls=[PARIS]),
        tool("17"),
        assistant("17.", thinking="Done."),
        user("Thanks"),
        assistant("Welcome", thinking="Polite."),
    ],
    "values of every kind": [
        user("Go"),
        assistant("", calls=[call("f", a=1, b=2.5, c=True, d=None, e=[1, "é"], f={"k": "v"}, g="x\ny")]),
    ],
    "white space": [user(" a \n"), assistant("b \n c"), user("\n\n  d"), assistant("e\n")],
    "letters of the world": [user("今天天气？ ｶﾞ"), assistant("很好 🙂 naïve")],
}  # fmt: skip

_PIECES = [
    "a", "Bc", " ", "  ", "\n", "\n\n", "\t", "é", "中文", "7", "42", "{", "}", '"', "'s", "<", ">",
    "</", "|", ".", "!", "_", "🙂", " \n", "\r\n", "im_start", "user", "assistant",
]  # fmt: skip
_BEGINS_ON_ITS_LINE = re.compile(r"[ \t]*\S|\Z")


def _texts(count: int) -> list[str]:
    """Drawn once: drawing letter by letter takes ten times as long as rendering."""
    dice = random.Random(0)
    return ["", *("".join(dice.choices(_PIECES, k=dice.randint(1, 8))) for _ in range(count))]


_TEXTS = _texts(400)
_ANSWERS = [text for text in _TEXTS if _BEGINS_ON_ITS_LINE.match(text)]


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(_TEXTS)


def answers() -> st.SearchStrategy[str]:
    """What the assistant says. Its header is encoded apart, so it begins with no line break."""
    return st.sampled_from(_ANSWERS)


def calls() -> st.SearchStrategy[list[ToolCall]]:
    values = (
        texts() | st.integers(-9, 99) | st.booleans() | st.none() | st.lists(texts(), max_size=2)
    )
    arguments = st.dictionaries(st.sampled_from(["city", "n", "ok"]), values, max_size=3)
    one = st.builds(lambda name, given: call(name, **given), st.sampled_from("fg"), arguments)
    return st.lists(one, min_size=1, max_size=2)


@st.composite
def conversations(draw: st.DrawFn, *, ends_with_answer: bool) -> list[Message]:
    """Any number of turns with tools and reasoning, from an answer back to an empty system line."""
    messages = [system(draw(texts()))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        messages.append(user(draw(texts())))
        for _ in range(draw(st.integers(0, 2))):
            thinking = draw(st.just("") | texts())
            messages.append(assistant(draw(answers()), thinking=thinking, calls=draw(calls())))
            messages += [tool(draw(texts())) for _ in range(draw(st.integers(1, 2)))]
        messages.append(assistant(draw(answers()), thinking=draw(st.just("") | texts())))
    return messages if ends_with_answer else messages[: draw(st.integers(1, len(messages)))]
