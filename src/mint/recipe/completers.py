"""Completers: what continues a prompt, seen as tokens or as messages.

A rollout asks a `TokenCompleter` and keeps the tokens and logprobs exactly as they were sampled. A
`MessageCompleter` is for judges, users and opponents that only ever speak text.
"""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mint import ModelInput, types
from mint.recipe import service
from mint.recipe.messages import Message
from mint.recipe.sampling_requests import JoinedSampling, RequestSlots
from mint.recipe.tasks import has_running_loop

if TYPE_CHECKING:
    from mint.recipe.renderers.base import Renderer

StopCondition: TypeAlias = list[str] | list[int]
"""Strings, or token ids, that end a completion."""


@dataclass(frozen=True)
class TokensWithLogprobs:
    """One completion as it was sampled. It is never encoded again."""

    tokens: list[int]
    maybe_logprobs: list[float] | None
    """Nats, one per token, under the distribution that was sampled from (so at its temperature)."""
    stop_reason: Literal["stop", "length"] = "stop"
    sequence_id: str | None = None
    """The server's name for this sequence, where it has one."""
    prompt_cache_hit_tokens: int = 0
    """How many tokens of the prompt were not computed for this completion."""

    @property
    def logprobs(self) -> list[float]:
        """The logprobs, where training needs them.

        Raises:
            ValueError: this completion was made without.
        """
        if self.maybe_logprobs is None:
            raise ValueError(
                f"this completion of {len(self.tokens)} tokens has no logprobs. To train on it, its "
                "completer must return the logprobs it sampled with; greedy or foreign text cannot "
                "give them."
            )
        return self.maybe_logprobs


class TokenCompleter(ABC):
    """Continues tokens."""

    @abstractmethod
    async def __call__(
        self, model_input: ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        """One continuation of `model_input`.

        Args:
            stop: ends the continuation; the sampled stop token is part of it.
            max_tokens: a cap for this call, below the completer's own. The runner passes it only
                when there is a budget, so a completer without it serves rollouts without one.
        """


class MessageCompleter(ABC):
    """Answers a conversation."""

    @abstractmethod
    async def __call__(self, messages: list[Message]) -> Message:
        """The next message, an assistant's, after `messages`."""


class TinkerTokenCompleter(TokenCompleter):
    """Samples from a SamplingClient; equal prompts of one moment go out as one request."""

    def __init__(
        self,
        sampling_client: Any,
        max_tokens: int,
        temperature: float = 1.0,
        context_window: int | None = None,
        *,
        slots: RequestSlots | None = None,
    ) -> None:
        """
        Args:
            max_tokens: the most any call samples.
            context_window: tokens that prompt and completion may have together; a prompt that
                fills it gets an empty completion that says "length", and no request is made.
            slots: a bound on requests in flight, shared with whoever else holds it.
        """
        self.sampling_client = sampling_client
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.context_window = context_window
        self.slots = slots
        self._sampling = JoinedSampling(sampling_client, slots)

    def __reduce__(self) -> Any:
        # for a rollout in another process: nothing that is in flight goes along
        arguments = self.sampling_client, self.max_tokens, self.temperature, self.context_window
        return type(self), arguments

    async def __call__(
        self, model_input: ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        cap = self.max_tokens if max_tokens is None else min(self.max_tokens, max_tokens)
        if self.context_window is not None:
            cap = min(cap, self.context_window - model_input.length)
        if cap < 1:
            return TokensWithLogprobs([], [], "length")
        params = types.SamplingParams(stop=stop, max_tokens=cap, temperature=self.temperature)
        drawn = await self._sampling.draw(model_input, params)
        sequence = drawn.sequence
        return TokensWithLogprobs(
            tokens=list(sequence.tokens),
            maybe_logprobs=None if sequence.logprobs is None else list(sequence.logprobs),
            stop_reason=sequence.stop_reason,
            sequence_id=service.sequence_id(sequence),
            prompt_cache_hit_tokens=drawn.cache_hit_tokens,
        )


class TinkerMessageCompleter(MessageCompleter):
    """Answers conversations with a SamplingClient, through a renderer."""

    def __init__(
        self,
        sampling_client: Any,
        renderer: "Renderer",
        max_tokens: int = 256,
        stop_condition: StopCondition | None = None,
        temperature: float = 1.0,
    ) -> None:
        """
        Args:
            stop_condition: None: the renderer's.
        """
        self.sampling_client = sampling_client
        self.renderer = renderer
        self.max_tokens = max_tokens
        self.stop_condition = stop_condition
        self.temperature = temperature

    async def __call__(self, messages: list[Message]) -> Message:
        return await self._answer(messages, self._params())

    def complete(
        self, messages: list[Message], sampling_params: Any = None, **overrides: Any
    ) -> Message:
        """The same for code without an event loop: scripts, threads, notebooks' workers.

        Args:
            sampling_params: replaces this completer's own parameters. What it leaves open (`stop`,
                `max_tokens`) is filled in from them.
            overrides: single fields of SamplingParams, above both.

        Raises:
            RuntimeError: an event loop runs in this thread; `await completer(messages)` there.
        """
        if not has_running_loop():
            params = self._params(sampling_params, overrides)
            return asyncio.run(self._answer(messages, params))
        raise RuntimeError(
            "TinkerMessageCompleter.complete() would block the event loop that runs in this "
            "thread. Use `await completer(messages)`, or call it in a thread of its own."
        )

    def _params(self, given: Any = None, overrides: dict[str, Any] | None = None) -> Any:
        stop = self.stop_condition
        own = {
            "stop": self.renderer.get_stop_sequences() if stop is None else stop,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        if given is not None:
            own.pop("temperature")  # a set of parameters says how to draw, be it by its defaults
            own |= {name: value for name, value in dict(given).items() if value is not None}
        return types.SamplingParams(**(own | (overrides or {})))

    async def _answer(self, messages: list[Message], params: types.SamplingParams) -> Message:
        prompt = await asyncio.to_thread(self.renderer.build_generation_prompt, messages)
        response = await service.sample(self.sampling_client, prompt, num_samples=1, params=params)
        message, _ = self.renderer.parse_response(list(response.sequences[0].tokens))
        answer: Message = {"role": "assistant", "content": message["content"]}
        if tool_calls := message.get("tool_calls"):
            answer["tool_calls"] = tool_calls
        return answer
