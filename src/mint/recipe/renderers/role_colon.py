"""`role_colon`: a conversation as plain text, for base models that know no chat markup.

    User: 2 + 2?

    Assistant: 4

    User: ...

The end of a turn is a text, a gap and "User:", for there is no token that means it.
"""

from collections.abc import Iterator, Sequence

from tinker import EncodedTextChunk, ModelInput, ModelInputChunk

from mint.recipe.messages import Message
from mint.recipe.renderers.base import Renderer
from mint.recipe.renderers.layout import (
    ParseTermination,
    RenderContext,
    RenderedMessage,
    joined,
    last_tokens,
    text_chunks,
)
from mint.recipe.renderers.streaming import MessageDelta, text_deltas, text_pieces, trimmed
from mint.recipe.renderers.turns import plain_text, say_once_that_it_ran_on

_GAP = "\n\n"
_NEXT = "User:"
STOP = _GAP + _NEXT
"""The gap ends a message; the rest is the header of the next one, if it is the user's."""


class RoleColonRenderer(Renderer):
    @property
    def has_extension_property(self) -> bool:
        return True

    def get_stop_sequences(self) -> list[str]:
        return [STOP]

    def start_tokens(self) -> list[int]:
        bos = self.tokenizer.bos_token
        return [self.special_id(bos)] if bos else []

    def render_message(self, message: Message, ctx: RenderContext) -> RenderedMessage:
        """ "Role:" is the header; the content after a space, and the gap, are the output."""
        return RenderedMessage(
            header=EncodedTextChunk(tokens=self.encode_text(f"{message['role'].capitalize()}:")),
            output=text_chunks(self.encode_text(f" {plain_text(message)}{_GAP}")),
            stop_overlap=EncodedTextChunk(tokens=self.encode_text(_NEXT)),
        )

    # ----------------------------------------------------------------- turns

    def end_of_turn_after(self, sampled: ModelInput) -> list[int]:
        """Nothing after the stop text. After the tokenizer's end of text, or a cut, the gap."""
        return [] if self._stopped(sampled) else self.encode_text(_GAP)

    def continuation(
        self, previous: ModelInput, new_messages: Sequence[Message], role: str
    ) -> list[ModelInputChunk]:
        """As for any family, except that the header of the user's message was sampled already, as
        part of the stop text."""
        chunks = joined(super().continuation(previous, new_messages, role)).chunks
        if not self._stopped(previous):
            return chunks
        if not new_messages or new_messages[0]["role"] != "user":
            raise NotImplementedError(
                'role_colon samples the header of a user message ("User:") as the end of a turn; '
                "another message cannot follow without rewriting it. Use build_generation_prompt."
            )
        header = self.encode_text(_NEXT)
        first, *others = chunks
        assert isinstance(first, EncodedTextChunk)  # text: headers are
        return [*text_chunks(first.tokens[len(header) :]), *others]

    def _stopped(self, sampled: ModelInput) -> bool:
        # A token is a byte or more, so the stop text is in the last len(STOP) tokens.
        return self.encoder.decode(last_tokens(sampled, len(STOP))).endswith(STOP)

    # --------------------------------------------------------------- parsing

    def parse_response(self, response: list[int]) -> tuple[Message, ParseTermination]:
        """The text up to the stop text. The tokenizer's end of text counts, too, in its stead:
        base models like to end so."""
        written, ends = self._before_end(response)
        content, *more = self.encoder.decode(written).split(STOP)
        if len(more) + ends > 1:
            say_once_that_it_ran_on(len(more) + ends, self)
            how = ParseTermination.MALFORMED
        elif more:
            how = ParseTermination.STOP_SEQUENCE
        else:
            how = ParseTermination.EOS if ends else ParseTermination.MALFORMED
        return Message(role="assistant", content=content.strip()), how

    def parse_response_streaming(self, response: list[int]) -> Iterator[MessageDelta]:
        written, _ = self._before_end(response)
        pieces = trimmed(text_pieces(self.encoder, written), STOP)
        yield from text_deltas(pieces, self.parse_response(response)[0])

    def _before_end(self, response: list[int]) -> tuple[list[int], int]:
        """Tokens up to the tokenizer's end of text, and how many of those there are."""
        eos = self.tokenizer.eos_token_id
        ends = response.count(eos)
        return (response[: response.index(eos)] if ends else response), ends
