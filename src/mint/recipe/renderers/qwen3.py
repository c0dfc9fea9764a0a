"""Qwen3: with reasoning, with reasoning switched off, and the instruct models that have none."""

from collections.abc import Sequence

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message
from mint.recipe.renderers.chatml import END_THINK, THINK, ChatMLRenderer, Piece
from mint.recipe.renderers.layout import RenderContext, Stretch, checked
from mint.recipe.renderers.reasoning import reasoning_of
from mint.recipe.renderers.tool_calls import JsonCalls
from mint.recipe.renderers.turns import plain_text
from mint.recipe.think_blocks import Reasoned

_EMPTY_BLOCK: list[Piece] = [THINK, "\n\n", END_THINK, "\n\n"]
"""What switches reasoning off: it is over before it began."""


def whole_block(reasoning: str) -> list[Piece]:
    """A think block that the model writes from its first tag to its last."""
    return [THINK, f"\n{reasoning}\n", END_THINK, "\n\n"]


class Qwen3Renderer(ChatMLRenderer):
    """Qwen3 as it was released: reasons first, then answers.

    The turn being produced has a think block, empty if there was no reasoning. Reasoning before the
    last user message is left out of the prompt, so history is rewritten (no extension property).

    Without any user message, or in a prompt that follows the assistant's own message, the template
    has think blocks that no model would sample; there we write what it would.

    Source: chat template published with Qwen/Qwen3-0.6B.
    """

    tools = JsonCalls()

    def assistant_pieces(
        self, message: Message, ctx: RenderContext
    ) -> tuple[list[Piece], list[Piece]]:
        reasoned = reasoning_of(message)
        calls = self.call_pieces(message, bool(reasoned.text))
        if not ctx.in_last_assistant_turn or not (ctx.is_last or reasoned.reasoning):
            return [], [reasoned.text, *calls]
        supplied, block = self.block(reasoned.reasoning.strip("\n"))
        return supplied, [*block, reasoned.text.lstrip("\n"), *calls]

    def block(self, reasoning: str) -> tuple[list[Piece], list[Piece]]:
        """A think block: what the prompt supplies of it, and what the model writes."""
        return [], whole_block(reasoning)


class ThinkingSwitchedOff(ChatMLRenderer):
    """A family of reasoning models told not to reason: the prompt ends in an empty think block."""

    def stretches(self, messages: Sequence[Message], *, ends: bool = True) -> list[Stretch]:
        if ends:
            _refuse_reasoning(messages, after=self.last_user_index(messages))
        return super().stretches(messages, ends=ends)

    def block(self, reasoning: str) -> tuple[list[Piece], list[Piece]]:
        # With reasoning: in a prompt whose model did reason, against what it was told.
        return ([], whole_block(reasoning)) if reasoning else (_EMPTY_BLOCK, [])


class Qwen3DisableThinkingRenderer(ThinkingSwitchedOff, Qwen3Renderer):
    """Qwen3 told not to reason."""


class Qwen3InstructRenderer(ChatMLRenderer):
    """The instruct models without reasoning (Qwen3-…-Instruct-2507, Qwen2.5-…-Instruct).

    Plain ChatML: nothing is ever rewritten, so an episode of many turns is one example.
    """

    tools = JsonCalls()

    @property
    def has_extension_property(self) -> bool:
        return True

    def assistant_pieces(
        self, message: Message, ctx: RenderContext
    ) -> tuple[list[Piece], list[Piece]]:
        text = plain_text(Message(role="assistant", content=message["content"]))
        return [], [text, *self.call_pieces(message, bool(text))]

    def reasoned(self, text: str) -> Reasoned:
        return Reasoned("", text)


def _refuse_reasoning(messages: Sequence[Message], after: int) -> None:
    """Refuse a training example whose last turn would teach what the prompt switches off.

    Args:
        after: index of the last user message.

    Raises:
        RendererError: an assistant message behind it has reasoning.
    """
    for i, message in enumerate(checked(messages)):
        if i > after and message["role"] == "assistant" and reasoning_of(message).reasoning:
            raise RendererError(
                f"messages[{i}] has reasoning, but the prompt of this renderer ends in an empty "
                "think block. Train it with the thinking variant, or leave reasoning out "
                "(remove_thinking)."
            )
