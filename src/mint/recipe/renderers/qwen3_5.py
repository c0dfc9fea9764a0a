"""Qwen3.5 (and 3.6): the prompt opens the think block, and tool calls are written in tags."""

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message
from mint.recipe.renderers.chatml import END_THINK, THINK, ChatMLRenderer, Piece
from mint.recipe.renderers.layout import RenderContext, RenderedMessage
from mint.recipe.renderers.qwen3 import ThinkingSwitchedOff
from mint.recipe.renderers.reasoning import reasoning_of
from mint.recipe.renderers.tool_calls import TaggedCalls


class Qwen35Renderer(ChatMLRenderer):
    """Reasons first: the prompt ends in an opened think block, and the response begins inside it.

    Every assistant message after the last user message has its block; before it, none has
    (no extension property). White space around contents is dropped. One thing differs from the
    template's tokens: where the reasoning is empty, the block's two line breaks are two tokens,
    since the prompt supplies the first.

    Source: chat template published with Qwen/Qwen3.5-4B.
    """

    tools = TaggedCalls()
    opens_with_reasoning = True

    def said(self, text: str) -> str:
        return text.strip()

    def render_message(self, message: Message, ctx: RenderContext) -> RenderedMessage:
        if message["role"] == "system" and ctx.idx > 0:
            raise RendererError(
                f"messages[{ctx.idx}] is a system message; this family has one at the beginning "
                "only. Put it first, or send it as a user message."
            )
        return super().render_message(message, ctx)

    def assistant_pieces(
        self, message: Message, ctx: RenderContext
    ) -> tuple[list[Piece], list[Piece]]:
        reasoned = reasoning_of(message)
        text = reasoned.text.strip()
        said = [text, *self.call_pieces(message, bool(text))]
        if not ctx.in_last_assistant_turn:
            return [], said
        supplied, block = self.block(reasoned.reasoning.strip())
        return supplied, [*block, *said]

    def block(self, reasoning: str) -> tuple[list[Piece], list[Piece]]:
        """A think block: what the prompt supplies of it, and what the model writes."""
        return [THINK, "\n"], [f"{reasoning}\n", END_THINK, "\n\n"]


class Qwen35DisableThinkingRenderer(ThinkingSwitchedOff, Qwen35Renderer):
    """Qwen3.5 told not to reason."""

    opens_with_reasoning = False
