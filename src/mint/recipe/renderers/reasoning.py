"""Reasoning in and out of messages, whole and as it arrives."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Content, ContentPart, Message, TextPart, ThinkingPart
from mint.recipe.renderers.streaming import StreamingTextDelta, StreamingThinkingDelta
from mint.recipe.think_blocks import CLOSE, OPEN, Reasoned, read_reasoning


def reasoning_of(message: Message) -> Reasoned:
    """An assistant's message taken apart: thinking parts, or a closed block in plain text.

    The published templates read text so, too: a block written out is reasoning, not something said.

    Raises:
        RendererError: there is a part that is neither text nor thinking.
    """
    content = message["content"]
    if isinstance(content, str):
        return read_reasoning(content) if CLOSE in content else Reasoned("", content)
    reasoning, text = "", ""
    for part in content:
        if part["type"] == "thinking":
            reasoning += part["thinking"]
        elif part["type"] == "text":
            text += part["text"]
        else:
            raise RendererError(
                f"an assistant message has a part of type {part['type']!r}; this renderer takes "
                "text and thinking."
            )
    return Reasoned(reasoning, text) if reasoning or CLOSE not in text else read_reasoning(text)


def as_content(reasoned: Reasoned) -> Content:
    """Text alone where nothing was thought; else a thinking part, and a text part if one is said."""
    if not reasoned.reasoning:
        return reasoned.text
    parts: list[ContentPart] = [ThinkingPart(type="thinking", thinking=reasoned.reasoning)]
    if reasoned.text:
        parts.append(TextPart(type="text", text=reasoned.text))
    return parts


def response_pieces(
    pieces: Iterable[str], read: Callable[[str], Reasoned], until: str
) -> Iterator[StreamingThinkingDelta | StreamingTextDelta]:
    """A response as it arrives: what is thought, then what is said, without the tags.

    Args:
        read: takes the response so far apart.
        until: where the text ends, such as the tag of a tool call.
    """
    seen, given = "", Reasoned("", "")
    for piece in pieces:
        seen += piece
        now = _without(until, read(_settled(seen, (OPEN, CLOSE, until))))
        yield from _added(given, now)
        given = now
    yield from _added(given, _without(until, read(seen)))


def _without(until: str, reasoned: Reasoned) -> Reasoned:
    said, found, _ = reasoned.text.partition(until)
    return Reasoned(reasoned.reasoning, said.rstrip() if found else said)


def _settled(text: str, tags: Sequence[str]) -> str:
    """Without an end that the next piece may turn into a tag, or that may be cut before one."""
    begun = max(
        (n for tag in tags for n in range(1, len(tag)) if text.endswith(tag[:n])), default=0
    )
    return text[: len(text) - begun].rstrip()


def _added(
    before: Reasoned, now: Reasoned
) -> Iterator[StreamingThinkingDelta | StreamingTextDelta]:
    if thought := now.reasoning.removeprefix(before.reasoning):
        yield StreamingThinkingDelta(thought, content_index=0)
    if said := now.text.removeprefix(before.text):
        yield StreamingTextDelta(said, content_index=1 if now.reasoning else 0)
