"""`hf_template`: whatever the tokenizer's own chat template says. Text only.

The template's text is cut where the assistant's turns begin and end, and each piece is encoded by
itself: so a turn has the tokens that the model would have sampled, in a prompt as in an example.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from tinker import ModelInput, ModelInputChunk

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message
from mint.recipe.renderers import special_text
from mint.recipe.renderers.base import Renderer
from mint.recipe.renderers.chat_template import TemplateText, template_of
from mint.recipe.renderers.layout import (
    ParseTermination,
    RenderContext,
    Stretch,
    checked,
    joined,
    text_chunks,
)
from mint.recipe.renderers.streaming import MessageDelta, text_deltas, text_pieces
from mint.recipe.renderers.turns import until_stop
from mint.recipe.text_encoder import TextEncoder, Tokenizer

_ASKED = Message(role="user", content="alpha")
_ANSWERED = Message(role="assistant", content="omega")
_REASONED = Message(role="assistant", content="<think>\nbeta\n</think>\n\nomega")


class HFTemplateRenderer(Renderer):
    """Any model with a chat template that ends the assistant's turn with a special token.

    Which tokens are a message's own is known for the assistant's turns only, so other messages
    cannot be trained (but all tokens can).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._text = template_of(tokenizer)
        self._shape = _shape_of(self._text, self.encoder)

    @property
    def has_extension_property(self) -> bool:
        return self._shape.extends

    def get_stop_sequences(self) -> list[int]:
        return [self._shape.stop]

    def render_message(self, message: Message, ctx: RenderContext) -> NoReturn:
        raise NotImplementedError(
            "a chat template renders whole conversations: use build_generation_prompt, "
            "build_supervised_example or stretches."
        )

    def generation_suffix(self, role: str, ctx: RenderContext) -> list[int]:
        return self.encoder.markup(self._text_asking(role))

    # --------------------------------------------------------------- prompts

    def stretches(self, messages: Sequence[Message], *, ends: bool = True) -> list[Stretch]:
        plain, hidden = special_text.hide(checked(messages), self.encoder)
        text = self._text(plain, False) if plain else ""
        return self._cut(text, plain, hidden, ends=ends)

    def build_generation_prompt(
        self, messages: Sequence[Message], role: str = "assistant", prefill: str | None = None
    ) -> ModelInput:
        asking = self._text_asking(role)
        plain, hidden = special_text.hide(checked(messages), self.encoder)
        text = self._text(plain, True) if plain else asking
        row = self._cut(text, plain, hidden, ends=False)
        return joined([*(one.chunk for one in row), *text_chunks(self.encode_text(prefill or ""))])

    def continuation(
        self, previous: ModelInput, new_messages: Sequence[Message], role: str
    ) -> list[ModelInputChunk]:
        self._text_asking(role)
        plain, hidden = special_text.hide(checked(new_messages), self.encoder)
        before = self._text([_ASKED], True) + self._shape.turn("omega")
        after = self._text([_ASKED, _ANSWERED, *plain], True)
        if not after.startswith(before):
            raise NotImplementedError(
                "with these messages the chat template writes earlier turns otherwise. Use "
                "build_generation_prompt with the whole conversation."
            )
        return text_chunks(special_text.encode(after[len(before) :], hidden, self.encoder))

    def _text_asking(self, role: str) -> str:
        if role != "assistant":
            raise RendererError(f"a chat template asks for the assistant's turn, not for {role!r}.")
        return self._shape.asking

    # ---------------------------------------------------------------- cutting

    def _cut(
        self, text: str, messages: Sequence[Message], hidden: Sequence[str], *, ends: bool
    ) -> list[Stretch]:
        """The template's text as stretches: the assistant's turns are outputs, the rest is not."""

        def stretch(piece: str, owner: int | None) -> list[Stretch]:
            chunks = text_chunks(special_text.encode(piece, hidden, self.encoder))
            return [Stretch(chunk, owner, owner is not None) for chunk in chunks]

        row: list[Stretch] = []
        done = 0
        for i, begin, end in self._turns(text, messages):
            row += stretch(text[done:begin], None) + stretch(text[begin:end], i)
            done = end
        if ends and row and row[-1].owner == len(messages) - 1:
            return row  # what the template writes behind the last turn is never sampled
        return row + stretch(text[done:], None)

    def _turns(self, text: str, messages: Sequence[Message]) -> Iterator[tuple[int, int, int]]:
        """(message, begin, end) of the assistant's turns that stand behind the very prompt they
        would be sampled after. A template that rewrites history has others, too."""
        done = 0
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = self._text(messages[:i], True) if i else self._shape.asking
            end = text.find(self._shape.end, len(prompt))
            if len(prompt) >= done and text.startswith(prompt) and end >= 0:
                done = end + len(self._shape.end)
                yield i, len(prompt), done

    # --------------------------------------------------------------- parsing

    def parse_response(self, response: list[int]) -> tuple[Message, ParseTermination]:
        written, how = until_stop(response, self._shape.stop, self)
        text = self.encoder.decode(written).removeprefix(self._shape.lead)
        return Message(role="assistant", content=text.removesuffix(self._shape.gap)), how

    def parse_response_streaming(self, response: list[int]) -> Iterator[MessageDelta]:
        written, _ = until_stop(response, self._shape.stop, self)
        yield from text_deltas(text_pieces(self.encoder, written), self.parse_response(response)[0])


# ------------------------------------------------------------------- shape


@dataclass(frozen=True)
class _Shape:
    """What a template does, found by rendering two turns with it."""

    asking: str
    """What it adds to ask the assistant for its turn."""
    lead: str
    """White space that it puts before the assistant's content."""
    gap: str
    """White space that it puts behind it."""
    stop_text: str
    stop: int
    """The special token that ends the assistant's turn."""
    extends: bool = False
    """Whether it leaves earlier turns as they were sampled."""

    @property
    def end(self) -> str:
        return self.gap + self.stop_text

    def turn(self, content: str) -> str:
        """What the model samples to say this."""
        return self.lead + content + self.end


def _shape_of(text: TemplateText, encoder: TextEncoder) -> _Shape:
    """Measure a template.

    Raises:
        RendererError: it does not add what asks for a turn, or ends turns without a special token.
    """
    given, asked = text([_ASKED], False), text([_ASKED], True)
    answered = text([_ASKED, _ANSWERED], False)
    _, found, tail = answered.rpartition("omega")
    begin, end = next(iter(encoder.find_special(tail)), (0, 0))
    stop = encoder.special(tail[begin:end])
    if not asked.startswith(given) or not found or stop is None or tail[:begin].strip():
        raise RendererError(
            "this chat template has no turns that we could find: it should ask for the assistant's "
            "turn at the end of the prompt, and end that turn with a special token. It renders "
            f"a question as {asked!r}, and with its answer as {answered!r}."
        )
    lead = answered.removeprefix(asked).partition("omega")[0]
    shape = _Shape(
        asking=asked[len(given) :],
        lead="" if lead.strip() else lead,
        gap=tail[:begin],
        stop_text=tail[begin:end],
        stop=stop,
    )
    extends = all(
        text([_ASKED, said, _ASKED], True).startswith(asked + shape.turn(str(said["content"])))
        for said in (_ANSWERED, _REASONED)
    )
    return replace(shape, extends=extends and answered.startswith(asked + shape.turn("omega")))
