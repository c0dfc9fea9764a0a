"""What is trained of a conversation: one weight per token, and how many examples that takes."""

import logging
import weakref
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tinker import EncodedTextChunk, ModelInput

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message
from mint.recipe.renderers.layout import Stretch, checked, contexts, joined

if TYPE_CHECKING:
    from mint.recipe.renderers.base import Renderer

logger = logging.getLogger(__name__)

Weights: TypeAlias = NDArray[np.float32]
"""One weight per position of a model input; 1 is trained, 0 is context."""


class TrainOnWhat(StrEnum):
    """Which outputs get weight 1. Headers have weight 0 except under ALL_TOKENS."""

    LAST_ASSISTANT_MESSAGE = "last_assistant_message"
    """The last message, if it is the assistant's."""
    LAST_ASSISTANT_TURN = "last_assistant_turn"
    """The assistant's messages after the last user message; more than one where tools are called."""
    ALL_ASSISTANT_MESSAGES = "all_assistant_messages"
    ALL_MESSAGES = "all_messages"
    ALL_TOKENS = "all_tokens"
    ALL_USER_AND_SYSTEM_MESSAGES = "all_user_and_system_messages"
    CUSTOMIZED = "customized"
    """Those whose key "trainable" is true; every message has to have it."""


_SEVERAL_TURNS = {
    TrainOnWhat.LAST_ASSISTANT_TURN,
    TrainOnWhat.ALL_ASSISTANT_MESSAGES,
    TrainOnWhat.ALL_MESSAGES,
    TrainOnWhat.CUSTOMIZED,
}
"""Modes that may train a turn which is not the last."""


def trained_messages(messages: Sequence[Message], what: TrainOnWhat, last_user: int) -> set[int]:
    """Indices of the messages whose output is trained.

    Raises:
        RendererError: "trainable" is missing where it is read, or set where it is not.
    """
    _check_trainable(messages, what)
    is_trained = {
        TrainOnWhat.LAST_ASSISTANT_MESSAGE: lambda i, m: (
            m["role"] == "assistant" and i == len(messages) - 1
        ),
        TrainOnWhat.LAST_ASSISTANT_TURN: lambda i, m: m["role"] == "assistant" and i > last_user,
        TrainOnWhat.ALL_ASSISTANT_MESSAGES: lambda i, m: m["role"] == "assistant",
        TrainOnWhat.ALL_MESSAGES: lambda i, m: True,
        TrainOnWhat.ALL_TOKENS: lambda i, m: True,
        TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES: lambda i, m: m["role"] in ("user", "system"),
        TrainOnWhat.CUSTOMIZED: lambda i, m: bool(m["trainable"]),
    }[what]
    return {i for i, message in enumerate(messages) if is_trained(i, message)}


def _check_trainable(messages: Sequence[Message], what: TrainOnWhat) -> None:
    wanted = what is TrainOnWhat.CUSTOMIZED
    for i, message in enumerate(messages):
        if ("trainable" in message) is not wanted:
            raise RendererError(
                f'messages[{i}] has no "trainable", which train_on_what="customized" reads of '
                "every message."
                if wanted
                else f'messages[{i}] has "trainable", which only train_on_what="customized" reads; '
                f'it is "{what}" here. Use customized, or leave the key out.'
            )


# ------------------------------------------------------------- one example


def weighted_example(
    renderer: "Renderer", messages: Sequence[Message], what: TrainOnWhat
) -> tuple[ModelInput, Weights]:
    """The whole conversation, with what `what` says trained."""
    if what in _SEVERAL_TURNS and not renderer.has_extension_property:
        _warn_once(renderer, what)
    trained = trained_messages(messages, what, renderer.last_user_index(messages))
    if what is TrainOnWhat.ALL_TOKENS:
        whole = joined(stretch.chunk for stretch in renderer.stretches(messages))
        return whole, np.ones(whole.length, np.float32)
    return _with_weights(renderer, messages, trained)


def _with_weights(
    renderer: "Renderer", messages: Sequence[Message], trained: Collection[int]
) -> tuple[ModelInput, Weights]:
    messages = checked(messages)
    row = renderer.stretches(messages)
    _check_that_outputs_are_known(renderer, row, trained)
    weights = [
        np.full(one.chunk.length, one.is_output and one.owner in trained, np.float32) for one in row
    ]
    whole = np.concatenate(weights) if weights else np.zeros(0, np.float32)
    places = contexts(messages, renderer.last_user_index(messages))
    for ctx, message in zip(places, messages, strict=True):
        if message["role"] == "assistant" and ctx.idx in trained:
            start, own = _text_of(row, ctx.idx)
            supplied = renderer.generation_suffix("assistant", ctx)
            if own[: len(supplied)] == supplied:
                # Also where the prompt supplies what counts as output, such as an empty think
                # block: what is always given need not be learnt.
                whole[start : start + len(supplied)] = 0
    return joined(stretch.chunk for stretch in row), whole


def _check_that_outputs_are_known(
    renderer: "Renderer", row: Sequence[Stretch], trained: Collection[int]
) -> None:
    lost = sorted(set(trained) - {one.owner for one in row if one.is_output})
    if lost:
        raise RendererError(
            f"{type(renderer).__name__} cannot tell which tokens are the output of "
            f"messages{lost}, so they cannot be trained in this example. A chat template tells that "
            "of assistant turns only, and not of those that it rewrites when others follow: train "
            "one turn per example (build_supervised_examples), or all_tokens."
        )


def _text_of(row: Sequence[Stretch], owner: int) -> tuple[int, list[int]]:
    """Where a message begins, and its tokens up to its first image."""
    start = 0
    own: list[int] = []
    for one in row:
        if one.owner == owner:
            if not isinstance(one.chunk, EncodedTextChunk):
                break
            own += one.chunk.tokens
        elif own:
            break
        else:
            start += one.chunk.length
    return start, own


_warned: "weakref.WeakSet[Renderer]" = weakref.WeakSet()


def _warn_once(renderer: "Renderer", what: TrainOnWhat) -> None:
    if renderer not in _warned:
        _warned.add(renderer)
        logger.warning(
            'train_on_what="%s" in one example, but %s renders earlier turns otherwise than they '
            "were sampled, so they are trained in a context that never occurs. "
            "build_supervised_examples gives one example per turn.",
            what,
            type(renderer).__name__,
        )


# ---------------------------------------------------------------- several


def weighted_examples(
    renderer: "Renderer", messages: Sequence[Message], what: TrainOnWhat
) -> list[tuple[ModelInput, Weights]]:
    """One example if earlier turns stay as they are, else one per trained turn, ending at it.

    Raises:
        RendererError: other text than the assistant's is to be trained, and a turn would be
            rendered differently in each of several examples.
    """
    if renderer.has_extension_property:
        return [weighted_example(renderer, messages, what)]
    trained = sorted(trained_messages(messages, what, renderer.last_user_index(messages)))
    others = {messages[i]["role"] for i in trained} - {"assistant"}
    if others or what is TrainOnWhat.ALL_TOKENS:
        raise RendererError(
            f'train_on_what="{what}" trains messages of {", ".join(sorted(others)) or "no one"}, '
            f"and {type(renderer).__name__} renders them differently from turn to turn. Use "
            "build_supervised_example, or a mode that trains the assistant only."
        )
    return [_with_weights(renderer, messages[: i + 1], {i}) for i in trained]
