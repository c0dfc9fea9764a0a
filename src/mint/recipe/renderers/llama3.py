"""`llama3`: the chat format of Llama 3, without a date or a knowledge cutoff before it."""

from collections.abc import Iterator

from tinker import EncodedTextChunk

from mint.recipe.messages import Message
from mint.recipe.renderers.base import Renderer
from mint.recipe.renderers.layout import (
    ParseTermination,
    RenderContext,
    RenderedMessage,
    text_chunks,
)
from mint.recipe.renderers.streaming import MessageDelta, text_deltas, text_pieces
from mint.recipe.renderers.turns import plain_text, until_stop
from mint.recipe.text_encoder import Tokenizer

_ROLES = {"tool": "ipython"}
"""Roles that this family calls otherwise."""


class Llama3Renderer(Renderer):
    """<|start_header_id|>role<|end_header_id|>, two line breaks, content, <|eot_id|>.

    Nothing is ever rewritten: what was sampled stays as it is, white space included, where the
    published template would trim it.

    Source: "Model Cards and Prompt formats: Llama 3", llama.com.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._begin = self.special_id("<|begin_of_text|>")
        self._open = self.special_id("<|start_header_id|>")
        self._close = self.special_id("<|end_header_id|>")
        self._end = self.special_id("<|eot_id|>")
        self._break = self.encode_text("\n\n")

    @property
    def has_extension_property(self) -> bool:
        return True

    def get_stop_sequences(self) -> list[int]:
        return [self._end]

    def start_tokens(self) -> list[int]:
        return [self._begin]

    def render_message(self, message: Message, ctx: RenderContext) -> RenderedMessage:
        role = _ROLES.get(message["role"], message["role"])
        header = [self._open, *self.encode_text(role), self._close, *self._break]
        return RenderedMessage(
            header=EncodedTextChunk(tokens=header),
            output=text_chunks([*self.encode_text(plain_text(message)), self._end]),
        )

    def parse_response(self, response: list[int]) -> tuple[Message, ParseTermination]:
        written, how = until_stop(response, self._end, self)
        return Message(role="assistant", content=self.encoder.decode(written)), how

    def parse_response_streaming(self, response: list[int]) -> Iterator[MessageDelta]:
        written, _ = until_stop(response, self._end, self)
        yield from text_deltas(text_pieces(self.encoder, written), self.parse_response(response)[0])
