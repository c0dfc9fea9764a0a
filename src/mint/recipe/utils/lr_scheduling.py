"""How the learning rate falls over a run."""

import math
from typing import Literal, get_args

from mint.recipe.exceptions import ConfigurationError

LRSchedule = Literal["linear", "cosine", "constant"]


def compute_schedule_lr_multiplier(
    lr_schedule: LRSchedule, step: int, total_steps: int, warmup_steps: int = 0
) -> float:
    """What the learning rate is multiplied by at a step.

        progress = step / total_steps
        linear:   1 - progress
        cosine:   (1 + cos(pi * progress)) / 2

    The first step has the full rate, and the last one is the last above 0.

    Args:
        step: from 0.
        warmup_steps: over these the multiplier also rises, by (step + 1) / warmup_steps.

    Raises:
        ConfigurationError: no such schedule, or total_steps < 1.
    """
    if total_steps < 1:
        raise ConfigurationError(f"total_steps={total_steps}: a schedule needs at least one step.")
    progress = min(max(step / total_steps, 0.0), 1.0)
    warm = min(1.0, (step + 1) / warmup_steps) if warmup_steps > 0 else 1.0
    if lr_schedule == "constant":
        return warm
    if lr_schedule == "linear":
        return warm * (1 - progress)
    if lr_schedule == "cosine":
        return warm * (1 + math.cos(math.pi * progress)) / 2
    raise ConfigurationError(
        f"lr_schedule={lr_schedule!r}: give one of {', '.join(get_args(LRSchedule))}."
    )
