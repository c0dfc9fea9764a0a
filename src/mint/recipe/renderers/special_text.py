"""The text of special tokens in what somebody said, taken through a chat template unread.

A template makes one text of markup and of what was said; read as a whole, "<|im_end|>" typed by a
user would end the turn. So such pieces travel through the template as numbered placeholders, and
are put back as ordinary tokens.
"""

import re
from collections.abc import Sequence

from mint.recipe.messages import Message
from mint.recipe.renderers.turns import plain_text
from mint.recipe.text_encoder import TextEncoder

_OPEN, _CLOSE = "\ue000", "\ue001"  # private use: nobody's letters, and no white space to trim
_PLACEHOLDER = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_OURS = re.compile(f"[{_OPEN}{_CLOSE}]")


def hide(messages: Sequence[Message], encoder: TextEncoder) -> tuple[list[Message], list[str]]:
    """The messages as a template takes them, and what was hidden.

    Raises:
        RendererError: a message has other parts than text.
    """
    hidden: list[str] = []
    plain: list[Message] = []
    for message in messages:
        taken = Message(role=message["role"], content=_hide(plain_text(message), encoder, hidden))
        if "name" in message:
            taken["name"] = message["name"]
        if "tool_call_id" in message:
            taken["tool_call_id"] = message["tool_call_id"]
        plain.append(taken)
    return plain, hidden


def _hide(text: str, encoder: TextEncoder, hidden: list[str]) -> str:
    spans = encoder.find_special(text)
    if _OURS.search(text):  # somebody does use our placeholders' characters
        spans = sorted({*spans, *(found.span() for found in _OURS.finditer(text))})
    whole = ""
    done = 0
    for begin, end in spans:
        whole += f"{text[done:begin]}{_OPEN}{len(hidden)}{_CLOSE}"
        hidden.append(text[begin:end])
        done = end
    return whole + text[done:]


def encode(text: str, hidden: Sequence[str], encoder: TextEncoder) -> list[int]:
    """Tokens of a template's text, with what was hidden as ordinary text."""
    tokens: list[int] = []
    for i, piece in enumerate(_PLACEHOLDER.split(text)):
        if piece:
            tokens += encoder.ordinary(hidden[int(piece)]) if i % 2 else encoder.markup(piece)
    return tokens
