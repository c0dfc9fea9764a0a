"""What is known of a response besides its tokens."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ScoringContext:
    """Given to `__call__` or `acall` if they take a third parameter `context`."""

    stop_reason: Literal["stop", "length"] | None = None
    """Whether the model ended the response or was cut off; None where nobody sampled it."""


NO_CONTEXT = ScoringContext()
