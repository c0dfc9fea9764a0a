"""A response piece by piece, as it would be shown while it arrives."""

from collections.abc import Iterable, Iterator, Sequence
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


def text_deltas(pieces: Iterable[str], whole: Message) -> Iterator[MessageDelta]:
    """A response that is text and nothing else: its header, the pieces, and the whole message."""
    yield StreamingMessageHeader(role="assistant")
    for text in pieces:
        yield StreamingTextDelta(text)
    yield whole


def trimmed(pieces: Iterable[str], stop: str) -> Iterator[str]:
    """The text before `stop`, without white space around it, in pieces as early as can be.

    Kept back: white space that may be the end, and what may be the beginning of `stop`.
    """
    held = ""
    begun = False
    for piece in pieces:
        held += piece
        if stop in held:
            held = held.partition(stop)[0]
            break
        begins = (n for n in range(min(len(stop), len(held)), 0, -1) if held.endswith(stop[:n]))
        sure = len(held[: len(held) - next(begins, 0)].rstrip())
        if sure:
            yield held[:sure] if begun else held[:sure].lstrip()
            held, begun = held[sure:], True
    if rest := held.rstrip() if begun else held.strip():
        yield rest
