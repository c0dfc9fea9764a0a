"""Prompts from messages: rendered off the event loop, a group's first one once, history never again.

Rendering is the costliest thing a rollout does by itself: a long prompt takes milliseconds, and a
batch of 128 groups of 16 begins with 2,048 of them, all but 128 of which are copies.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from mint import ModelInput, types
from mint.recipe.messages import Message

if TYPE_CHECKING:
    from mint.recipe.renderers.base import Renderer

SHORT = 400
"""Characters; about 0.1 ms of encoding."""


@dataclass(frozen=True)
class _Rendering:
    renderer: "Renderer"
    messages: list[Message]
    prompt: "asyncio.Future[ModelInput]"


_shared: ContextVar[list[_Rendering] | None] = ContextVar("mint_recipe_prompts", default=None)


@contextmanager
def sharing_prompts() -> Iterator[None]:
    """Within this block, members of a group that begin with the same messages share one prompt.

    They also get it in the same turn of the event loop, so their requests can be joined.
    """
    token = _shared.set([])
    try:
        yield
    finally:
        _shared.reset(token)


async def first_prompt(renderer: "Renderer", messages: list[Message]) -> ModelInput:
    """The prompt that an episode begins with, shared within the group."""
    shared = _shared.get()
    if shared is None or not all(isinstance(one.get("content"), str) for one in messages):
        return await rendered(renderer, messages)  # comparing images costs more than it saves
    for known in shared:
        if known.renderer is renderer and known.messages == messages:
            return await asyncio.shield(known.prompt)  # one member's end is not the others'
    mine = snapshot(messages)
    render = renderer.build_generation_prompt
    prompt = asyncio.get_running_loop().run_in_executor(None, render, mine)
    shared.append(_Rendering(renderer, mine, prompt))
    return await asyncio.shield(prompt)


async def rendered(renderer: "Renderer", messages: list[Message]) -> ModelInput:
    """The prompt for the message after `messages`."""
    return await asyncio.to_thread(renderer.build_generation_prompt, messages)


async def extended(
    renderer: "Renderer", prompt: ModelInput, action: list[int], new_messages: list[Message]
) -> ModelInput | None:
    """`prompt`, the tokens sampled after it, and `new_messages`, of which alone tokens are made.

    None if this renderer cannot tell how they go on; the whole conversation is then rendered.
    """
    sampled = types.EncodedTextChunk(tokens=action)
    previous = ModelInput(chunks=[*prompt.chunks, sampled])
    try:
        if _are_short(new_messages):
            return renderer.bridge(previous, new_messages)
        return await asyncio.to_thread(renderer.bridge, previous, new_messages)
    except NotImplementedError:
        return None


def _are_short(messages: list[Message]) -> bool:
    """Whether rendering them takes less time than handing them to a thread and back."""
    contents = [message.get("content") for message in messages]
    return all(isinstance(one, str) for one in contents) and sum(map(len, contents)) <= SHORT


def snapshot(messages: list[Message]) -> list[Message]:
    """The messages as they are now; an env may go on to change its own."""
    return [_copy(message) for message in messages]


def _copy(message: Message) -> Message:
    copy = cast(Message, dict(message))
    if isinstance(content := message.get("content"), list):
        copy["content"] = [dict(part) for part in content]  # type: ignore[misc]
    return copy


def new_since(
    before: list[Message], answer: Message, conversation: list[Message]
) -> list[Message] | None:
    """What `conversation` adds to `before` and the `answer` to it; None if it is not those first."""
    known = len(before)
    is_longer = len(conversation) > known and conversation[known] == answer
    return conversation[known + 1 :] if is_longer and conversation[:known] == before else None
