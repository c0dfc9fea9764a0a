"""What an episode shows of itself on the way, and what may be done then."""

from dataclasses import dataclass
from typing import Any

from mint.recipe.rl.types import StopReason, Transition


@dataclass(frozen=True)
class RolloutState:
    """An episode as hooks see it."""

    turn_index: int
    """Turns that are over."""
    observation_tokens: int
    """Of the prompt that comes next."""
    sampled_tokens: int
    """Of all turns."""
    num_length_truncations: int
    """Turns that were cut at their length."""
    elapsed_seconds: float
    transitions: list[Transition]


class RolloutHooks:
    """What may be done along the way. Any object with some of these methods will do."""

    async def on_turn_begin(self, state: RolloutState) -> list[Any] | None:
        """Messages to add to the conversation before the model is asked, or None."""

    async def on_stop_reason(self, reason: StopReason, state: RolloutState) -> StopReason | None:
        """A limit is reached: this or another reason ends the episode; None lifts that limit.

        A time that runs out in the middle of a turn ends the episode whatever is returned.
        """
        return reason

    async def on_grade(self, state: RolloutState) -> None:
        """The env has ended the episode, and said what it is worth."""

    async def on_artifacts(self, state: RolloutState) -> None:
        """The episode is over, however it ended."""
