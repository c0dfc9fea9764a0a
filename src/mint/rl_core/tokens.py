"""Tokens as an adapter is given them: as they were sent and sampled."""

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

from mint import ModelInput
from mint.recipe.text_encoder import encoder_for, fast_tokenizer, special_ids

Tokens: TypeAlias = ModelInput | Sequence[int]


def as_model_input(tokens: Any, name: str) -> ModelInput:
    """A ModelInput as it is; a sequence of token ids as one.

    Args:
        name: of the argument, for the error.

    Raises:
        TypeError: it is neither.
    """
    if hasattr(tokens, "to_ints"):
        return tokens
    if isinstance(tokens, str | bytes):
        raise TypeError(f"{name} is text: encode it first, tokenizer.encode({tokens!r:.40}).")
    if hasattr(tokens, "tokens"):
        tokens = tokens.tokens  # a sampled sequence
    try:
        return ModelInput.from_ints([operator.index(token) for token in tokens])
    except TypeError as error:
        raise TypeError(
            f"{name} is {type(tokens).__name__} {tokens!r:.60}: give a ModelInput or a list of token "
            f"ids ({error})."
        ) from None


def identity(model_input: ModelInput) -> str:
    """What tells two inputs apart: tokens however they are cut into chunks, and whatever else there
    is among them."""
    parts: list[str] = []
    for chunk in model_input.chunks:
        tokens = getattr(chunk, "tokens", None)
        if tokens is None:
            parts.append(chunk.model_dump_json())
        else:
            parts.extend(str(token) for token in tokens)
    return ",".join(parts)


def text_of(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Text of tokens without special ones; what is no text becomes U+FFFD. From any thread."""
    special = _special_tokens(tokenizer)
    return encoder_for(tokenizer).decode([token for token in tokens if token not in special])


def _special_tokens(tokenizer: Any) -> set[int]:
    fast = fast_tokenizer(tokenizer)
    if fast is None:
        return set(special_ids(tokenizer))
    added = fast.get_added_tokens_decoder()
    return {number for number, token in added.items() if token.special}
