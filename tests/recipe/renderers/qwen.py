"""Qwen's real vocabulary, conversations to render, and the published templates as judge."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tests.recipe.renderers.fast import Fast
from tokenizers import AddedToken

from mint.recipe.messages import Message
from mint.recipe.renderers.openai import as_openai_message
from mint.torch_engine.models.qwen_vocabulary import qwen_tokenizer

_SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
_ADDED = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
)  # fmt: skip
"""Whole tokens that Qwen3 does not call special."""


class QwenTokenizer(Fast):
    """Qwen3's: ids 151643 to 151668 are its markup."""

    def __init__(self) -> None:
        inside = qwen_tokenizer(_SPECIAL)
        inside.add_tokens([AddedToken(text, special=False, normalized=False) for text in _ADDED])
        super().__init__(inside, eos_token="<|im_end|>")


@cache
def tokenizer() -> QwenTokenizer:
    return QwenTokenizer()


class Template:
    """A chat template, rendered as transformers renders it."""

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        environment.globals["raise_exception"] = _refuse
        self._template = environment.from_string(source)

    def __call__(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        asks: bool = False,
        thinking: bool = True,
        parsed_arguments: bool = False,
    ) -> str:
        """The conversation as text.

        Args:
            asks: for the next message.
            parsed_arguments: tool calls' arguments as an object; else as JSON text.
        """
        return self._template.render(
            messages=[_for_template(message, parsed_arguments) for message in messages],
            tools=[{"type": "function", "function": tool} for tool in tools] or None,
            add_generation_prompt=asks,
            enable_thinking=thinking,
        )


def _for_template(message: Message, parsed_arguments: bool) -> dict[str, Any]:
    plain = as_openai_message(message)
    for call in plain.get("tool_calls", ()) if parsed_arguments else ():
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return plain


def _refuse(reason: str) -> None:
    raise ValueError(reason)
