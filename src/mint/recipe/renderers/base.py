"""Renderer: messages to tokens for a model family, and sampled tokens back to a message."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tinker import ModelInput, ModelInputChunk

from mint.recipe.exceptions import RendererError
from mint.recipe.messages import Message, ToolSpec
from mint.recipe.messages import format_content_as_string as format_content_as_string
from mint.recipe.messages import get_text_content as get_text_content
from mint.recipe.renderers import examples
from mint.recipe.renderers.examples import TrainOnWhat, Weights
from mint.recipe.renderers.layout import (
    ParseTermination,
    RenderContext,
    RenderedMessage,
    Stretch,
    after,
    checked,
    contexts,
    joined,
    last_tokens,
    last_user_index,
    stretches_of,
    text_chunks,
)
from mint.recipe.renderers.openai import as_openai_message
from mint.recipe.renderers.streaming import MessageDelta
from mint.recipe.text_encoder import Tokenizer, encoder_for, token

if TYPE_CHECKING:
    import torch


class Renderer(ABC):
    """One family's way of writing a conversation. Stateless: safe in threads, and shared."""

    registered_as: tuple[str, str | None] | None = None
    """(renderer name, model name), set by get_renderer; what a pickle is made of."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.encoder = encoder_for(tokenizer)

    # ---------------------------------------------------- what a family says

    @property
    def has_extension_property(self) -> bool:
        """Whether the prompt for `messages[:k]` plus what was sampled is the beginning of the
        prompt for `messages[:k+2]`. Then an episode of many turns is one training example."""
        return False

    @abstractmethod
    def get_stop_sequences(self) -> list[str] | list[int]:
        """Where sampling stops: token ids, or strings for a family without an end-of-turn token."""

    @abstractmethod
    def render_message(self, message: Message, ctx: RenderContext) -> RenderedMessage:
        """One message at its place."""

    @abstractmethod
    def parse_response(self, response: list[int]) -> tuple[Message, ParseTermination]:
        """The message that sampled tokens are, as well as it can be read. Never raises."""

    def start_tokens(self) -> list[int]:
        """What opens every conversation, such as a BOS token."""
        return []

    def generation_suffix(self, role: str, ctx: RenderContext) -> list[int]:
        """What asks the model for the next message: the header that its turn will have."""
        header = self.render_message(Message(role=role, content=""), ctx).header
        return [] if header is None else list(header.tokens)

    def last_user_index(self, messages: Sequence[Message]) -> int:
        """Where the turn that is going on begins: the last user message, -1 without one."""
        return last_user_index(messages)

    # --------------------------------------------------------------- tokens

    def encode_text(self, text: str) -> list[int]:
        """Tokens of what somebody said; the text of a special token in it stays text."""
        return self.encoder.ordinary(text) if text else []

    def special_id(self, text: str) -> int:
        """The id of a special token. Raises: RendererError, if the tokenizer has no such token."""
        return token(self.encoder, text)

    # -------------------------------------------------------------- prompts

    def stretches(self, messages: Sequence[Message], *, ends: bool = True) -> list[Stretch]:
        """The conversation without what asks for a next message.

        Args:
            ends: the last message really is the last, as in a training example.
        """
        messages = checked(messages)
        row = [Stretch(chunk, None, False) for chunk in text_chunks(self.start_tokens())]
        places = contexts(messages, self.last_user_index(messages), ends=ends)
        for ctx, message in zip(places, messages, strict=True):
            row += stretches_of(self.render_message(message, ctx), ctx)
        return row

    def build_generation_prompt(
        self, messages: Sequence[Message], role: str = "assistant", prefill: str | None = None
    ) -> ModelInput:
        """The prompt that asks for the next message.

        Args:
            messages: none is fine, too: the prompt then is the header alone.
            prefill: the beginning of the answer, put into the model's mouth.
        """
        row = [stretch.chunk for stretch in self.stretches(messages, ends=False)]
        return joined([*row, *self._asking(role, messages, prefill)])

    def bridge(
        self, previous: ModelInput, new_messages: Sequence[Message], role: str = "assistant"
    ) -> ModelInput:
        """The next prompt, made of the last one with its sampled tokens and the messages since.

        Costs only the new tokens, and history stays as it was sampled: encoding the model's own
        text again may give other tokens.

        Args:
            previous: prompt and sampled tokens. If the turn was cut off, its end is added.
            new_messages: what came after the sampled message.

        Raises:
            NotImplementedError: this family rewrites history (no extension property).
        """
        if not self.has_extension_property:
            raise NotImplementedError(
                f"{type(self).__name__} rewrites earlier turns, so a prompt cannot be extended. "
                "Use build_generation_prompt with the whole conversation."
            )
        added = [
            *text_chunks(self.end_of_turn_after(previous)),
            *self.continuation(previous, new_messages, role),
        ]
        return ModelInput(chunks=[*previous.chunks, *joined(added).chunks])

    def continuation(
        self, previous: ModelInput, new_messages: Sequence[Message], role: str
    ) -> list[ModelInputChunk]:
        """What follows the end of the sampled turn: the new messages, and what asks for the next."""
        sampled = Message(role="assistant", content="")  # its place only; its tokens are there
        whole = checked([sampled, *new_messages])
        places = contexts(whole, self.last_user_index(whole), ends=False)
        chunks: list[ModelInputChunk] = []
        for ctx, message in list(zip(places, whole, strict=True))[1:]:
            chunks += [one.chunk for one in stretches_of(self.render_message(message, ctx), ctx)]
        return [*chunks, *self._asking(role, whole, None)]

    def end_of_turn_after(self, sampled: ModelInput) -> list[int]:
        """What is missing of the end of the sampled turn: nothing, unless it was cut off."""
        stops = [stop for stop in self.get_stop_sequences() if isinstance(stop, int)]
        ended = bool(set(last_tokens(sampled, 1)) & set(stops))
        return [] if ended else stops[:1]

    def _asking(
        self, role: str, messages: Sequence[Message], prefill: str | None
    ) -> list[ModelInputChunk]:
        place = after(messages, self.last_user_index(messages))
        begun = self.encode_text(prefill) if prefill else []
        return text_chunks([*self.generation_suffix(role, place), *begun])

    # ------------------------------------------------------------- examples

    def weighted_example(
        self,
        messages: Sequence[Message],
        train_on_what: TrainOnWhat | str = TrainOnWhat.LAST_ASSISTANT_MESSAGE,
    ) -> tuple[ModelInput, Weights]:
        """The conversation as one training example, with a weight for each position."""
        return examples.weighted_example(self, messages, TrainOnWhat(train_on_what))

    def weighted_examples(
        self,
        messages: Sequence[Message],
        train_on_what: TrainOnWhat | str = TrainOnWhat.LAST_ASSISTANT_TURN,
    ) -> list[tuple[ModelInput, Weights]]:
        """As many training examples as it takes for every trained turn to see the context that it
        would be sampled in: one with the extension property, else one per trained turn.

        Raises:
            RendererError: text that is not the assistant's would have to be trained in parts.
        """
        return examples.weighted_examples(self, messages, TrainOnWhat(train_on_what))

    def build_supervised_example(
        self,
        messages: Sequence[Message],
        train_on_what: TrainOnWhat | str = TrainOnWhat.LAST_ASSISTANT_MESSAGE,
    ) -> "tuple[ModelInput, torch.Tensor]":
        """`weighted_example` for callers that use torch."""
        return _with_tensor(self.weighted_example(messages, train_on_what))

    def build_supervised_examples(
        self,
        messages: Sequence[Message],
        train_on_what: TrainOnWhat | str = TrainOnWhat.LAST_ASSISTANT_TURN,
    ) -> "list[tuple[ModelInput, torch.Tensor]]":
        """`weighted_examples` for callers that use torch."""
        return [_with_tensor(one) for one in self.weighted_examples(messages, train_on_what)]

    # --------------------------------------------------- tools and other forms

    def create_conversation_prefix_with_tools(
        self, tools: list[ToolSpec], system_prompt: str = ""
    ) -> list[Message]:
        """The messages that open a conversation in which these tools can be called.

        Raises:
            NotImplementedError: we have no way of writing tools for this family.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no form for tools. Describe them in a system message of "
            "your own, or use a renderer of the qwen3 family."
        )

    def to_openai_message(self, message: Message) -> dict[str, Any]:
        """The message as the chat API has it."""
        return as_openai_message(message)

    def parse_response_streaming(self, response: list[int]) -> Iterator[MessageDelta]:
        """The response piece by piece, then the whole message.

        Raises:
            NotImplementedError: this family is only read as a whole.
        """
        raise NotImplementedError(f"{type(self).__name__} reads responses as a whole only.")

    def __reduce__(self) -> tuple[Any, ...]:
        from mint.recipe.renderers import registry

        if self.registered_as is None:
            raise RendererError(
                f"this {type(self).__name__} did not come from get_renderer(name, tokenizer), so a "
                "pickle could not say how to make it again. Register it (register_renderer) and "
                "get it by its name."
            )
        return registry.rebuilt, self.registered_as


def _with_tensor(example: tuple[ModelInput, Weights]) -> "tuple[ModelInput, torch.Tensor]":
    import torch

    return example[0], torch.from_numpy(example[1])
