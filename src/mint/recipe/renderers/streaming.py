"""A response piece by piece, as it would be shown while it arrives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mint.recipe.messages import Message
from mint.recipe.text_encoder import TextEncoder


@dataclass(frozen=True)
class StreamingMessageHeader:
    """A message begins."""

    role: str
    name: str | None = None


@dataclass(frozen=True)
class StreamingTextDelta:
    """What has been added to the text."""

    text: str
    content_index: int = 0
    """Which part of the content it belongs to."""


@dataclass(frozen=True)
class StreamingThinkingDelta:
    """What has been added to the reasoning."""

    thinking: str
    content_index: int = 0


MessageDelta: TypeAlias = (
    StreamingMessageHeader | StreamingTextDelta | StreamingThinkingDelta | Message
)
"""A header first, then pieces, and the whole message at the end."""

_UNREADABLE = "�"
_LONGEST_CHARACTER = 4
"""Bytes of UTF-8. A token that is not text after so many more never will be."""


def text_pieces(encoder: TextEncoder, tokens: Sequence[int]) -> Iterator[str]:
    """The text that each token adds; their concatenation is the text of all.

    A character may be spread over several tokens: it is given once it is whole.
    """
    held: list[int] = []
    for number in tokens:
        held.append(number)
        text = encoder.decode(held)
        if not text.endswith(_UNREADABLE) or len(held) >= _LONGEST_CHARACTER:
            yield text
            held = []
    if held:
        yield encoder.decode(held)
