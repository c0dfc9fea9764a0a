"""What a rendered conversation is made of, as values.

It is a row of stretches. Each belongs to a message and is either its header (role markers, whatever
the prompt supplies) or its output (content and end-of-turn token): what the model would have
sampled. A generation prompt and a training example are two readings of that row.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from tinker import EncodedTextChunk, ModelInput, ModelInputChunk

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message


class ParseTermination(StrEnum):
    """How a sampled response ended. In a condition it is true when it ended cleanly: code written
    for older recipes reads the second value of parse_response as a bool."""

    STOP_SEQUENCE = "stop_sequence"
    """With the end of turn that this family uses."""
    EOS = "eos"
    """With the tokenizer's end of text instead, where a family lets that count."""
    MALFORMED = "malformed"
    """Cut off, or ended more than once."""

    @property
    def is_clean(self) -> bool:
        return self is not ParseTermination.MALFORMED

    @property
    def is_stop_sequence(self) -> bool:
        return self is ParseTermination.STOP_SEQUENCE

    def __bool__(self) -> bool:
        return self.is_clean


@dataclass(frozen=True)
class RenderContext:
    """Where a message stands in its conversation."""

    idx: int
    is_last: bool
    """Nothing follows it. False throughout a generation prompt, whose last message is still to
    come."""
    prev_message: Message | None = None
    next_message: Message | None = None
    last_user_index: int = -1
    """Of the last message with role "user"; -1 without one."""
    in_last_assistant_turn: bool = False
    """It comes after the last user message: assistant and tool messages of the turn going on."""


@dataclass(frozen=True)
class RenderedMessage:
    output: list[ModelInputChunk]
    """What the model writes in its turn: content and end of turn."""
    header: EncodedTextChunk | None = None
    """What the prompt supplies before it."""
    stop_overlap: EncodedTextChunk | None = None
    """The rest of a stop string that belongs to the next message's header. Only a training example
    that ends here has it."""


@dataclass(frozen=True)
class Stretch:
    """Neighbouring tokens (or one image) of a rendered conversation, all of one kind."""

    chunk: ModelInputChunk
    owner: int | None
    """Index of its message; None for what belongs to no message, such as a BOS token."""
    is_output: bool


# ------------------------------------------------------------------ places


def contexts(
    messages: Sequence[Message], last_user: int, *, ends: bool = True
) -> Iterator[RenderContext]:
    """The place of each message. `ends`: the last one is the conversation's end."""
    end = len(messages) - 1
    for i in range(len(messages)):
        yield RenderContext(
            idx=i,
            is_last=ends and i == end,
            prev_message=messages[i - 1] if i else None,
            next_message=messages[i + 1] if i < end else None,
            last_user_index=last_user,
            in_last_assistant_turn=i > last_user,
        )


def after(messages: Sequence[Message], last_user: int) -> RenderContext:
    """The place of the message that is still to come."""
    return RenderContext(
        idx=len(messages),
        is_last=True,
        prev_message=messages[-1] if messages else None,
        last_user_index=last_user,
        in_last_assistant_turn=True,
    )


def checked(messages: Sequence[Message]) -> list[Message]:
    """The messages, each with a role and a content.

    A chat API leaves the content of a message that only calls tools empty or out.

    Raises:
        RendererError: a message lacks one of the two; it says which.
    """
    whole: list[Message] = []
    for i, message in enumerate(messages):
        if message.get("content") is None and message.get("tool_calls"):
            message = cast(Message, {**message, "content": ""})
        for key in ("role", "content"):
            if message.get(key) is None:
                raise RendererError(
                    f"messages[{i}] has no {key!r}: a message is a dict with a role and a content."
                )
        whole.append(message)
    return whole


def last_user_index(messages: Sequence[Message]) -> int:
    return max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)


def stretches_of(rendered: RenderedMessage, ctx: RenderContext) -> list[Stretch]:
    header = [] if rendered.header is None else text_chunks(rendered.header.tokens)
    output = list(rendered.output)
    if ctx.is_last and rendered.stop_overlap is not None:
        output.append(rendered.stop_overlap)
    return [Stretch(chunk, ctx.idx, False) for chunk in header] + [
        Stretch(chunk, ctx.idx, True) for chunk in output
    ]


# ------------------------------------------------------------------ chunks


def text_chunks(tokens: Sequence[int]) -> list[ModelInputChunk]:
    """One chunk, or none: the service refuses empty ones."""
    return [EncodedTextChunk(tokens=list(tokens))] if tokens else []


def joined(chunks: Iterable[ModelInputChunk]) -> ModelInput:
    """A model input in which neighbouring text is one chunk and none is empty."""
    whole: list[ModelInputChunk] = []
    text: list[int] = []
    for chunk in chunks:
        if isinstance(chunk, EncodedTextChunk):
            text += chunk.tokens
        else:
            whole += [*text_chunks(text), chunk]
            text = []
    return ModelInput(chunks=[*whole, *text_chunks(text)])


def last_tokens(model_input: ModelInput, n: int) -> list[int]:
    """Its last tokens, n or fewer: those since the last image. Costs n, however long it is."""
    tail: list[int] = []
    for chunk in reversed(model_input.chunks):
        if len(tail) >= n or not isinstance(chunk, EncodedTextChunk):
            break
        tail = [*chunk.tokens[-(n - len(tail)) :], *tail]
    return tail
