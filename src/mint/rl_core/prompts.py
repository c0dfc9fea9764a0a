"""Prompts as people write them: questions, conversations, or tokens that are sent as they are."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from mint import ModelInput
from mint.recipe.completers import StopCondition
from mint.recipe.exceptions import ConfigurationError, DataFormatError
from mint.recipe.messages import Message
from mint.rl_core.tokens import as_model_input

if TYPE_CHECKING:
    from mint.recipe.renderers.base import Renderer

Prompt: TypeAlias = str | Sequence[Message] | ModelInput | Sequence[int]
"""A user's message, a conversation, or tokens."""

_FORMS = "A prompt is a text (a user's message), a list of messages, a ModelInput, or a list of token ids"


def as_prompts(prompts: Any) -> list[Prompt]:
    """Prompts as a list, each of a form that can be sent.

    Raises:
        DataFormatError: there are none, or one has another form; it is named by its place.
    """
    if isinstance(prompts, str | Mapping | ModelInput) or not isinstance(prompts, Iterable):
        raise DataFormatError(
            f"prompts={prompts!r:.100} is {type(prompts).__name__}: give a list of prompts. {_FORMS}."
        )
    listed = filled(prompts)
    for place, prompt in enumerate(listed):
        if not _is_prompt(prompt):
            empty = " It is empty." if _is_empty(prompt) else ""
            hint = " One conversation is a list by itself: [[...]]." if _is_talk(listed) else ""
            raise DataFormatError(f"prompts[{place}] is {prompt!r:.100}.{empty} {_FORMS}.{hint}")
    return listed


def filled(prompts: Iterable[Any]) -> list[Any]:
    """Prompts or samples as a list.

    Raises:
        DataFormatError: there are none.
    """
    listed = list(prompts)
    if not listed:
        raise DataFormatError(
            "prompts is empty, so there is nothing to ask. Give one or more; if they are read or "
            "filtered, look at what came of that."
        )
    return listed


def is_rendered(prompt: Prompt) -> bool:
    """Whether it is words, for a renderer, and not tokens already."""
    return isinstance(prompt, str) or (not _is_tokens(prompt) and not _is_model_input(prompt))


def as_sent(prompt: Any, renderer: "Renderer") -> tuple[ModelInput, StopCondition]:
    """A prompt of words as the model reads it, and what ends the response."""
    messages = [Message(role="user", content=prompt)] if isinstance(prompt, str) else list(prompt)
    return renderer.build_generation_prompt(messages), renderer.get_stop_sequences()


def tokens_of(encoded: Any, source: str) -> ModelInput:
    """What an encoding came to: a ModelInput, token ids, or what a tokenizer of transformers gives
    for a chat template (a mapping with `input_ids`).

    Args:
        source: whose value it is, for the error.

    Raises:
        DataFormatError: it has no tokens.
    """
    if isinstance(encoded, Mapping) and "input_ids" in encoded:
        encoded = encoded["input_ids"]
    try:
        tokens = as_model_input(encoded, source)
    except TypeError as error:
        raise DataFormatError(str(error)) from None
    if not tokens.length:
        raise DataFormatError(f"{source} is empty: a model needs one token to go on from.")
    return tokens


def end_token(tokenizer: Any) -> int:
    """The token that ends a response.

    Raises:
        ConfigurationError: the tokenizer has none.
    """
    token = getattr(tokenizer, "eos_token_id", None)
    if not isinstance(token, int):
        raise ConfigurationError(
            f"{type(tokenizer).__name__}.eos_token_id is {token!r}, so nothing would end a response. "
            "Set tokenizer.eos_token to the token that does."
        )
    return token


def _is_prompt(prompt: Any) -> bool:
    if isinstance(prompt, str):
        return bool(prompt)
    return (_is_model_input(prompt) and prompt.length > 0) or _is_tokens(prompt) or _is_talk(prompt)


def _is_empty(prompt: Any) -> bool:
    return (
        prompt.length == 0
        if _is_model_input(prompt)
        else hasattr(prompt, "__len__") and len(prompt) == 0
    )


def _is_model_input(prompt: Any) -> bool:
    return hasattr(prompt, "to_ints")


def _is_tokens(prompt: Any) -> bool:
    return _is_filled(prompt) and all(hasattr(token, "__index__") for token in prompt)


def _is_talk(prompt: Any) -> bool:
    return _is_filled(prompt) and all(isinstance(one, Mapping) and "role" in one for one in prompt)


def _is_filled(prompt: Any) -> bool:
    """Whether it is a sequence, be it an array, of one element or more."""
    is_text = isinstance(prompt, str | bytes | Mapping) or _is_model_input(prompt)
    return not is_text and hasattr(prompt, "__getitem__") and len(prompt) > 0
