"""Families we have not written ourselves, through the package `renderers`, if it is installed.

    get_renderer("renderers/glm-4.5", tokenizer)      # or "renderers/auto", by the model's name

The package says which tokens of a conversation are the model's own; the rest is as for any family.
How it reads special tokens in what users type is its own affair.
"""

import copy
import json
import threading
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NoReturn

from tinker import ModelInput, ModelInputChunk

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import FunctionBody, Message, ToolCall, UnparsedToolCall
from mint.recipe.renderers.base import Renderer
from mint.recipe.renderers.layout import (
    ParseTermination,
    RenderContext,
    Stretch,
    checked,
    joined,
    text_chunks,
)
from mint.recipe.renderers.openai import as_openai_message
from mint.recipe.renderers.reasoning import as_content
from mint.recipe.renderers.turns import say_once_that_it_ran_on
from mint.recipe.text_encoder import Tokenizer
from mint.recipe.think_blocks import Reasoned

_TALK = [
    Message(role="user", content="alpha"),
    Message(role="assistant", content="omega"),
    Message(role="user", content="alpha"),
]


class OutsideRenderer(Renderer):
    """A renderer of the package `renderers`, by its name there.

    It gets a copy of the tokenizer, and one caller at a time: the package does not say that its
    renderers may be shared by threads.
    """

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        super().__init__(tokenizer)
        self._lock = threading.Lock()
        self._theirs = _create(tokenizer, name)
        self._stops: list[int] = list(self._theirs.get_stop_token_ids())
        self._extends = self._stays_as_sampled()

    @property
    def has_extension_property(self) -> bool:
        return self._extends

    def get_stop_sequences(self) -> list[int]:
        return self._stops

    def render_message(self, message: Message, ctx: RenderContext) -> NoReturn:
        raise NotImplementedError(
            "the package renderers renders whole conversations: use build_generation_prompt, "
            "build_supervised_example or stretches."
        )

    def generation_suffix(self, role: str, ctx: RenderContext) -> list[int]:
        return []  # what a prompt supplies is left out of their outputs already

    # --------------------------------------------------------------- prompts

    def stretches(self, messages: Sequence[Message], *, ends: bool = True) -> list[Stretch]:
        with self._lock:
            whole = self._theirs.render(_plain(messages))
        supplied = self._supplied(messages, whole.token_ids)
        places = zip(whole.message_indices, whole.sampled_mask, strict=True)
        kinds = [
            (who, said and at >= supplied.get(who, 0)) for at, (who, said) in enumerate(places)
        ]
        row: list[Stretch] = []
        for (who, is_output), run in groupby(range(len(kinds)), key=kinds.__getitem__):
            tokens = [whole.token_ids[at] for at in run]
            row += [
                Stretch(one, who if who >= 0 else None, is_output) for one in text_chunks(tokens)
            ]
        answered = ends and messages and messages[-1]["role"] == "assistant"
        while answered and row and not row[-1].is_output:
            row.pop()  # what a template writes behind the last turn is never sampled
        return row

    def _supplied(self, messages: Sequence[Message], tokens: Sequence[int]) -> dict[int, int]:
        """Up to where the prompt reaches, for each turn of the assistant that was sampled after a
        prompt as it stands here. Their mask may begin before, within a think block given."""
        reached: dict[int, int] = {}
        for i, message in enumerate(messages):
            if message["role"] == "assistant" and i:
                asked = self.build_generation_prompt(messages[:i]).to_ints()
                if list(tokens[: len(asked)]) == asked:
                    reached[i] = len(asked)
        return reached

    def build_generation_prompt(
        self, messages: Sequence[Message], role: str = "assistant", prefill: str | None = None
    ) -> ModelInput:
        _only_the_assistant(role)
        with self._lock:
            tokens = self._theirs.render_ids(_plain(messages), add_generation_prompt=True)
        return joined(text_chunks([*tokens, *self.encode_text(prefill or "")]))

    def end_of_turn_after(self, sampled: ModelInput) -> list[int]:
        return []  # their bridge ends a turn that was cut off

    def continuation(
        self, previous: ModelInput, new_messages: Sequence[Message], role: str
    ) -> list[ModelInputChunk]:
        _only_the_assistant(role)
        before = previous.to_ints()
        with self._lock:
            extended = self._theirs.bridge_to_next_turn(before, [], _plain(new_messages))
        if extended is None or extended.token_ids[: len(before)] != before:
            raise NotImplementedError(
                "this conversation cannot be extended by these messages. Use "
                "build_generation_prompt with the whole of it."
            )
        return text_chunks(extended.token_ids[len(before) :])

    def _stays_as_sampled(self) -> bool:
        """Whether two turns show the extension property: their promise speaks of histories only."""
        if not getattr(self._theirs, "is_prefix_stable", False):
            return False
        sampled = joined(one.chunk for one in self.stretches(_TALK[:2])).to_ints()
        asked = self.build_generation_prompt(_TALK[:1]).to_ints()
        later = self.build_generation_prompt(_TALK).to_ints()
        return sampled[: len(asked)] == asked and later[: len(sampled)] == sampled

    # --------------------------------------------------------------- parsing

    def parse_response(self, response: list[int]) -> tuple[Message, ParseTermination]:
        ends = [i for i, number in enumerate(response) if number in self._stops]
        with self._lock:
            parsed = self._theirs.parse_response(response[: ends[0] + 1] if ends else response)
        if len(ends) > 1:
            say_once_that_it_ran_on(len(ends), self)
        how = ParseTermination.STOP_SEQUENCE if len(ends) == 1 else ParseTermination.MALFORMED
        return _message(parsed), how


def _create(tokenizer: Tokenizer, name: str) -> Any:
    try:
        import renderers  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise RendererError(
            f'the renderer "renderers/{name}" is one of the package renderers, which is not '
            f"installed ({error}): pip install renderers."
        ) from error
    try:
        return renderers.create_renderer(copy.deepcopy(tokenizer), renderers.config_from_name(name))
    except Exception as error:  # of any kind: tokenizers and names meet their own checks there
        raise RendererError(
            f"the package renderers cannot make {name!r} for this tokenizer: {error}"
        ) from error


def _plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [as_openai_message(message) for message in checked(messages)]


def _only_the_assistant(role: str) -> None:
    if role != "assistant":
        raise RendererError(f"this renderer asks for the assistant's turn, not for {role!r}.")


def _message(parsed: Any) -> Message:
    """What they read of a response, as a message of ours."""
    reasoned = Reasoned(parsed.reasoning_content, parsed.content)
    message = Message(role="assistant", content=as_content(reasoned))
    calls = [call for call in parsed.tool_calls if call.status == "ok"]
    unread = [call for call in parsed.tool_calls if call.status != "ok"]
    if calls:
        message["tool_calls"] = [ToolCall(function=_body(call), id=call.id) for call in calls]
    if unread:
        message["unparsed_tool_calls"] = [
            UnparsedToolCall(raw_text=call.raw, error=str(call.status)) for call in unread
        ]
    return message


def _body(call: Any) -> FunctionBody:
    given = call.arguments
    written = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    return FunctionBody(name=call.name, arguments=written)
