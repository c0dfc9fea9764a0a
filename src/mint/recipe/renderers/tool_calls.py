"""How Qwen models are told of tools, and how they call them: two dialects of one shape.

Both put a call between <tool_call> lines. Qwen3 writes JSON there; Qwen3.5 writes a tag for the
function and one for each parameter. The sentences of the two prompts are those that the models were
trained with, as their published chat templates have them.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mint.recipe.exceptions import RendererError
from mint.recipe.json_numbers import refused_constant
from mint.recipe.messages import FunctionBody, ToolCall, ToolSpec, UnparsedToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"

_JSON_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_JSON_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
_TAGGED_HEAD = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
_TAGGED_TAIL = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO "
    "suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n<parameter=example_parameter_2>\n"
    "This is the value for the second parameter\nthat can span\nmultiple lines\n</parameter>\n"
    "</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block "
    "must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the "
    "function call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current "
    "knowledge and do not tell the user about function calls\n</IMPORTANT>"
)


@dataclass(frozen=True)
class FoundCalls:
    """A response taken apart: what is said, and what is called."""

    text: str
    """Without the calls, and without the line break before the first."""
    calls: list[ToolCall]
    unparsed: list[UnparsedToolCall]


class ToolDialect(ABC):
    """How one generation of models writes tools and calls."""

    before_first_call: str
    """Between what the message says and its first call."""

    @abstractmethod
    def system_prompt(self, tools: Sequence[ToolSpec], system_prompt: str) -> str:
        """The system message that offers these tools."""

    @abstractmethod
    def written(self, call: ToolCall) -> str:
        """What stands between the two <tool_call> lines.

        Raises:
            RendererError: the call's arguments cannot be written in this dialect.
        """

    @abstractmethod
    def read(self, inside: str) -> ToolCall:
        """The call that stands between the two tags.

        Raises:
            ValueError: it is not written as it should be; says what is wrong.
        """

    def find(self, text: str) -> FoundCalls:
        """Every call in a response. One that cannot be read is kept as it was written."""
        said, *pieces = text.split(OPEN)
        calls: list[ToolCall] = []
        unparsed: list[UnparsedToolCall] = []
        for piece in pieces:
            inside, closed, afterwards = piece.partition(CLOSE)
            try:
                if not closed:
                    raise ValueError(f"it has no closing {CLOSE}")
                calls.append(self.read(inside))
            except ValueError as error:
                unparsed.append(UnparsedToolCall(raw_text=OPEN + inside + closed, error=str(error)))
            said += afterwards if afterwards.strip() else ""
        return FoundCalls(said.rstrip() if pieces else said, calls, unparsed)


class JsonCalls(ToolDialect):
    """Qwen3, and Qwen2.5 before it."""

    before_first_call = "\n"

    def system_prompt(self, tools: Sequence[ToolSpec], system_prompt: str) -> str:
        begin = f"{system_prompt}\n\n" if system_prompt else ""
        return begin + _JSON_HEAD + _listed(tools) + _JSON_TAIL

    def written(self, call: ToolCall) -> str:
        function = call.function
        return f'{{"name": "{function.name}", "arguments": {function.arguments}}}'

    def read(self, inside: str) -> ToolCall:
        found = _json(inside)
        if not isinstance(found, dict) or not isinstance(found.get("name"), str):
            raise ValueError('it is no JSON object with a "name"')
        arguments = found.get("arguments", {})
        if isinstance(arguments, str):  # some models write the object as a string
            arguments = _json(arguments)
        if not isinstance(arguments, dict):
            raise ValueError(f'"arguments" is no JSON object but {type(arguments).__name__}')
        return _call(found["name"], arguments)


class TaggedCalls(ToolDialect):
    """Qwen3.5 and later.

    Values carry no type here: one that reads as a number, a list, an object or a truth value is
    taken as that, and anything else as a string. The string "12" comes back as a number.
    """

    before_first_call = "\n\n"

    def system_prompt(self, tools: Sequence[ToolSpec], system_prompt: str) -> str:
        end = f"\n\n{system_prompt.strip()}" if system_prompt.strip() else ""
        return _TAGGED_HEAD + _listed(tools) + _TAGGED_TAIL + end

    def written(self, call: ToolCall) -> str:
        try:
            arguments = json.loads(call.function.arguments)
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            raise RendererError(
                f"the arguments of the tool call {call.function.name!r} are no JSON object: "
                f"{call.function.arguments[:100]!r}. This family names each parameter, so it needs "
                "one."
            )
        lines = [f"<function={call.function.name}>\n"]
        for name, value in arguments.items():
            lines.append(f"<parameter={name}>\n{_value_text(value)}\n</parameter>\n")
        return "".join(lines) + "</function>"

    def read(self, inside: str) -> ToolCall:
        function = _FUNCTION.fullmatch(inside)
        if function is None:
            raise ValueError("it is no <function=name> … </function>")
        name, body = function.groups()
        if _PARAMETER.sub("", body).strip():
            raise ValueError("it has text outside of <parameter=name> … </parameter>")
        return _call(name, {name: _value(text) for name, text in _PARAMETER.findall(body)})


_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_PYTHON_WORDS = {"True": True, "False": False, "None": None}
"""The template writes truth values as Python does."""


def _listed(tools: Sequence[ToolSpec]) -> str:
    return "".join(
        "\n" + json.dumps({"type": "function", "function": tool}, ensure_ascii=False)
        for tool in tools
    )


def _call(name: str, arguments: dict[str, Any]) -> ToolCall:
    written = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(function=FunctionBody(name=name, arguments=written))


def _value_text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, str) else str(value)


def _value(text: str) -> Any:
    if text in _PYTHON_WORDS:
        return _PYTHON_WORDS[text]
    try:
        found = _json(text)
    except ValueError:
        return text
    return text if isinstance(found, str) else found


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=refused_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
