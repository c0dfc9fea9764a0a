"""How many tokens a step costs, by what is done with them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinker import types

from mint.recipe.rl.types import TrajectoryGroup


@dataclass(frozen=True)
class TokenUsage:
    """Tokens of some requests. Usages add up."""

    sampled: int = 0
    prefill_cached: int = 0
    """Of prompts, those that the sampler had computed before."""
    prefill_uncached: int = 0
    trained: int = 0

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.sampled + other.sampled,
            self.prefill_cached + other.prefill_cached,
            self.prefill_uncached + other.prefill_uncached,
            self.trained + other.trained,
        )

    def metrics(self, prefix: str = "tokens/") -> dict[str, float]:
        """One number per kind, under `prefix`."""
        return {
            f"{prefix}sampled": self.sampled,
            f"{prefix}prefill_cached": self.prefill_cached,
            f"{prefix}prefill_uncached": self.prefill_uncached,
            f"{prefix}trained": self.trained,
        }


def rollout_usage(trajectory_groups: Iterable[TrajectoryGroup]) -> TokenUsage:
    """Tokens that rolling out these groups sampled and read; every turn's prompt counts."""
    turns = [
        transition
        for group in trajectory_groups
        for trajectory in group.trajectories_G
        for transition in trajectory.transitions
    ]
    read = sum(turn.ob.length for turn in turns)
    cached = sum(min(turn.ac.prompt_cache_hit_tokens, turn.ob.length) for turn in turns)
    sampled = sum(len(turn.ac.tokens) for turn in turns)
    return TokenUsage(sampled=sampled, prefill_cached=cached, prefill_uncached=read - cached)


def trained_usage(data_D: Sequence[types.Datum]) -> TokenUsage:
    """Tokens that one training pass over these datums reads."""
    return TokenUsage(trained=sum(datum.model_input.length for datum in data_D))
