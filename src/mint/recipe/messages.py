"""Messages: what users, models and tools say to each other, as plain dicts.

A message comes from a user's code, a file or a parsed sample, so nothing is checked on the way in;
whoever reads a key that has to be there says which one is missing.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NotRequired, TypeAlias, TypedDict, cast

from mint.recipe.exceptions import DataFormatError

Role: TypeAlias = str
"""system, user, assistant or tool; a renderer may know more."""


class TextPart(TypedDict):
    type: Literal["text"]
    text: str


class ThinkingPart(TypedDict):
    """Reasoning. It has no key "text": joining the texts of all parts leaves it out."""

    type: Literal["thinking"]
    thinking: str


class ImagePart(TypedDict):
    type: Literal["image"]
    image: Any
    """A PIL image, a URL or a data URI."""


class AudioPart(TypedDict):
    type: Literal["audio"]
    audio: Any
    format: NotRequired[str]
    num_frames: NotRequired[int]
    sample_rate: NotRequired[int]


ContentPart: TypeAlias = TextPart | ThinkingPart | ImagePart | AudioPart
Content: TypeAlias = str | list[ContentPart]


@dataclass(frozen=True, kw_only=True)
class FunctionBody:
    """Which function is called, and its arguments as JSON text: as the model wrote them."""

    name: str
    arguments: str


_Body: TypeAlias = FunctionBody


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    FunctionBody: ClassVar[type[_Body]] = FunctionBody
    """The same class, where other code looks for it."""

    function: _Body
    id: str | None = None
    type: Literal["function"] = "function"


@dataclass(frozen=True, kw_only=True)
class UnparsedToolCall:
    """A tool call that the model began and did not write properly."""

    raw_text: str
    error: str


class ToolSpec(TypedDict):
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""


class Message(TypedDict):
    role: Role
    content: Content
    tool_calls: NotRequired[list[ToolCall]]
    unparsed_tool_calls: NotRequired[list[UnparsedToolCall]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    trainable: NotRequired[bool]
    """Read, and then required of every message, by TrainOnWhat.CUSTOMIZED."""


# ----------------------------------------------------------------- content


def ensure_list(content: Content) -> list[ContentPart]:
    """Content as parts; a string is one text part."""
    return [TextPart(type="text", text=content)] if isinstance(content, str) else content


def ensure_text(content: Content) -> str:
    """Content that has to be text alone.

    Raises:
        DataFormatError: it has parts other than one text part.
    """
    if isinstance(content, str):
        return content
    if len(content) == 1 and content[0]["type"] == "text":
        return content[0]["text"]
    kinds = ", ".join(part["type"] for part in content) or "none"
    raise DataFormatError(f"content has to be text here, but it has these parts: {kinds}.")


def get_text_content(message: Message) -> str:
    """What the message says: its text parts joined, without reasoning."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def has_thinking(content: Content) -> bool:
    return any(part["type"] == "thinking" for part in ensure_list(content))


def remove_thinking(parts: Sequence[ContentPart]) -> list[ContentPart]:
    return [part for part in parts if part["type"] != "thinking"]


def format_content_as_string(content: Content, separator: str = "\n") -> str:
    """For people: every part in its order, reasoning between think tags, media as placeholders."""
    return separator.join(_readable(part) for part in ensure_list(content))


def _readable(part: ContentPart) -> str:
    if part["type"] == "text":
        return part["text"]
    if part["type"] == "thinking":
        return f"<think>{part['thinking']}</think>"
    return f"<{part['type']}>"


# -------------------------------------------------------------- tool calls


def tool_calls_of(message: Message) -> list[ToolCall]:
    """The message's tool calls. Dicts in the chat API's form are read as well.

    Raises:
        DataFormatError: a call has no function with a name and arguments.
    """
    return [_tool_call(call) for call in message.get("tool_calls") or ()]


def _tool_call(call: ToolCall | Mapping[str, Any]) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    try:
        function = call["function"]
        body = FunctionBody(name=function["name"], arguments=function["arguments"])
    except (KeyError, TypeError) as error:
        raise DataFormatError(
            f"cannot read the tool call {call!r} ({error!r}): it needs "
            '"function": {"name": ..., "arguments": <JSON text>}.'
        ) from None
    return ToolCall(function=body, id=call.get("id"))


# ------------------------------------------------------------------ as JSON


def message_to_jsonable(message: Message) -> dict[str, Any]:
    """The message as values that json.dumps takes; images become data URIs."""
    plain: dict[str, Any] = {**message, "content": content_to_jsonable(message["content"])}
    for key in ("tool_calls", "unparsed_tool_calls"):
        if key in plain:
            plain[key] = [
                asdict(call) if isinstance(call, ToolCall | UnparsedToolCall) else call
                for call in plain[key]
            ]
    return plain


def content_to_jsonable(content: Content) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {key: _medium(value) if key in ("image", "audio") else value for key, value in part.items()}
        for part in content
    ]


def _medium(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if hasattr(value, "save"):  # a PIL image
        buffer = io.BytesIO()
        cast(Any, value).save(buffer, format="PNG")
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return repr(value)
