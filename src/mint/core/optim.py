"""AdamParams: one optimizer step, with upstream's names and defaults."""

import math
from dataclasses import dataclass

from mint.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class AdamParams:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101).

    State and arithmetic are float32. Bias correction counts this adapter's own steps.
    """

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    """Decoupled: w -= learning_rate * weight_decay * w before the Adam update."""
    grad_clip_norm: float = 0.0
    """Largest global L2 norm of this adapter's gradient; 0 leaves it as it is."""

    def __post_init__(self) -> None:
        for name in (
            "learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm",
        ):  # fmt: skip
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ConfigError(f"adam_params.{name}={value}: give a finite number, 0 or more.")
        for name in ("beta1", "beta2"):
            if getattr(self, name) >= 1:
                raise ConfigError(f"adam_params.{name}={getattr(self, name)}: must be below 1.")
