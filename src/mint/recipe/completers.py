"""Completers: what continues a prompt, seen as tokens or as messages.

A rollout asks a `TokenCompleter` and keeps the tokens and logprobs exactly as they were sampled. A
`MessageCompleter` is for judges, users and opponents that only ever speak text.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mint import ModelInput

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
    async def __call__(self, messages: list[Any]) -> Any:
        """The next message, an assistant's, after `messages`."""
