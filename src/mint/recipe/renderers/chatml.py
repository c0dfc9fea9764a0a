"""ChatML, the shape that Qwen's families share.

    <|im_start|>role
    content<|im_end|>

The line break between two turns belongs to the header of the later one: a model stops at
<|im_end|>, so the break is never sampled. Tool results are user turns; neighbouring ones share one.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tinker import EncodedTextChunk

from mint.recipe.messages import Message, ToolSpec, tool_calls_of
from mint.recipe.renderers.base import Renderer
from mint.recipe.renderers.layout import (
    ParseTermination,
    RenderContext,
    RenderedMessage,
    text_chunks,
)
from mint.recipe.renderers.reasoning import as_content, response_pieces
from mint.recipe.renderers.streaming import (
    MessageDelta,
    StreamingMessageHeader,
    text_pieces,
)
from mint.recipe.renderers.tool_calls import CLOSE, OPEN, ToolDialect
from mint.recipe.renderers.turns import plain_text, until_stop
from mint.recipe.text_encoder import Tokenizer
from mint.recipe.think_blocks import Reasoned, read_reasoning


@dataclass(frozen=True)
class Mark:
    """Markup of the template, as opposed to what somebody said: one token where there is one."""

    text: str


START, END = Mark("<|im_start|>"), Mark("<|im_end|>")
THINK, END_THINK = Mark("<think>"), Mark("</think>")
RESULT, END_RESULT = Mark("<tool_response>"), Mark("</tool_response>")
CALL, END_CALL = Mark(OPEN), Mark(CLOSE)

Piece: TypeAlias = str | Mark


class ChatMLRenderer(Renderer):
    """The shared shape. A family says how it writes the assistant's turn, and tools.

    Text of the published template, token for token, with one exception: the assistant's header is
    encoded apart from what follows, as it is when the model samples. A turn that begins with a line
    break may differ there.
    """

    tools: ToolDialect
    opens_with_reasoning = False
    """The prompt ends inside a think block, so a response begins there."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._end = self.special_id(END.text)
        self._marks = {START: self.special_id(START.text), END: self._end}
        for mark in (THINK, END_THINK, RESULT, END_RESULT, CALL, END_CALL):
            number = self.encoder.special(mark.text)
            if number is not None:  # else its letters are read as text, as the template would
                self._marks[mark] = number

    # ------------------------------------------------------- the family's part

    @abstractmethod
    def assistant_pieces(
        self, message: Message, ctx: RenderContext
    ) -> tuple[list[Piece], list[Piece]]:
        """What the prompt supplies after the role line, and what the model writes up to the end."""

    def said(self, text: str) -> str:
        """Content as this family writes it."""
        return text

    # --------------------------------------------------------------- rendering

    def last_user_index(self, messages: Sequence[Message]) -> int:
        """A tool result that a user message carries goes on with the turn, as in the template."""
        return max(
            (i for i, message in enumerate(messages) if self._is_question(message)), default=-1
        )

    def _is_question(self, message: Message) -> bool:
        content = message.get("content")
        text = self.said(content) if isinstance(content, str) else ""
        is_result = text.startswith(RESULT.text) and text.endswith(END_RESULT.text)
        return message["role"] == "user" and not is_result

    def get_stop_sequences(self) -> list[str] | list[int]:
        return [self._end]

    def render_message(self, message: Message, ctx: RenderContext) -> RenderedMessage:
        gap: list[Piece] = ["\n"] if ctx.idx > 0 else []
        role = message["role"]
        if role == "assistant":
            supplied, written = self.assistant_pieces(message, ctx)
            # Apart, as when sampling: a token over the border could be neither.
            header = self.encode([*gap, START, f"{role}\n", *supplied])
            return _rendered(header, self.encode([*written, END]))
        if role == "tool":
            return self._split([*gap, *_turn_of_results(ctx)], self._result(message, ctx))
        text = self.said(plain_text(message))
        return self._split([*gap, START, f"{role}\n"], [text, END])

    def _result(self, message: Message, ctx: RenderContext) -> list[Piece]:
        more = ctx.next_message is not None and ctx.next_message["role"] == "tool"
        text = self.said(plain_text(message))
        return [RESULT, f"\n{text}\n", END_RESULT, *([] if more else [END])]

    def call_pieces(self, message: Message, after_text: bool) -> Iterator[Piece]:
        """The message's tool calls, those that could not be read as they were."""
        written = [
            [CALL, f"\n{self.tools.written(call)}\n", END_CALL] for call in tool_calls_of(message)
        ]
        unread = [[call.raw_text] for call in message.get("unparsed_tool_calls") or ()]
        for i, pieces in enumerate([*written, *unread]):
            if i or after_text:
                yield "\n" if i else self.tools.before_first_call
            yield from pieces

    def encode(self, pieces: Sequence[Piece]) -> list[int]:
        """Tokens of markup and text. Text is encoded in stretches as long as they come, since a
        token may reach from one piece into the next."""
        tokens: list[int] = []
        text = ""
        for piece in pieces:
            number = self._marks.get(piece) if isinstance(piece, Mark) else None
            if number is None:
                text += piece.text if isinstance(piece, Mark) else piece
                continue
            tokens += [*self.encode_text(text), number]
            text = ""
        return tokens + self.encode_text(text)

    def _split(self, header: list[Piece], output: list[Piece]) -> RenderedMessage:
        """Both encoded together, as the template's text is; a token over the border is output."""
        before, whole = self.encode(header), self.encode([*header, *output])
        same = len(before)
        while before[:same] != whole[:same]:
            same -= 1
        return _rendered(whole[:same], whole[same:])

    # ------------------------------------------------------------------ tools

    def create_conversation_prefix_with_tools(
        self, tools: list[ToolSpec], system_prompt: str = ""
    ) -> list[Message]:
        if not tools and not system_prompt:
            return []
        text = self.tools.system_prompt(tools, system_prompt) if tools else system_prompt
        return [Message(role="system", content=text)]

    # ---------------------------------------------------------------- parsing

    def parse_response(self, response: list[int]) -> tuple[Message, ParseTermination]:
        written, termination = until_stop(response, self._end, self)
        return self._read(self.encoder.decode(written)), termination

    def parse_response_streaming(self, response: list[int]) -> Iterator[MessageDelta]:
        """Reasoning and text as they come; tool calls are in the whole message at the end."""
        written, _ = until_stop(response, self._end, self)
        yield StreamingMessageHeader(role="assistant")
        pieces = text_pieces(self.encoder, written)
        yield from response_pieces(pieces, self.reasoned, until=OPEN)
        yield self._read(self.encoder.decode(written))

    def _read(self, text: str) -> Message:
        reasoned = self.reasoned(text)
        found = self.tools.find(reasoned.text)
        content = as_content(Reasoned(reasoned.reasoning, found.text))
        message = Message(role="assistant", content=content)
        if found.calls:
            message["tool_calls"] = found.calls
        if found.unparsed:
            message["unparsed_tool_calls"] = found.unparsed
        return message

    def reasoned(self, text: str) -> Reasoned:
        """A response taken apart: what is thought, what is said."""
        return read_reasoning(text, is_open=self.opens_with_reasoning)


def _turn_of_results(ctx: RenderContext) -> list[Piece]:
    """The header of a tool result: none if it goes on in the turn of the one before."""
    goes_on = ctx.prev_message is not None and ctx.prev_message["role"] == "tool"
    return [] if goes_on else [START, "user\n"]


def _rendered(header: list[int], output: list[int]) -> RenderedMessage:
    return RenderedMessage(
        output=text_chunks(output), header=EncodedTextChunk(tokens=header) if header else None
    )
