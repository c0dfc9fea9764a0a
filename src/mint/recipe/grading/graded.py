"""A score and what it is made of."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Graded:
    """A score with its parts, in the shape of a reward: `Reward(*graded)` is one."""

    score: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Read-only; a copy of what was given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))

    def __iter__(self) -> Iterator[Any]:
        return iter((self.score, self.metadata))

    def __float__(self) -> float:
        return self.score


def weighted_sum(
    components: Mapping[str, float | bool | Graded], weights: Mapping[str, float]
) -> Graded:
    """One score from several, each of which stays visible.

        score = sum_k weights[k] * components[k]

    The weights need not add up to 1, and a penalty is a component that is negative. The metadata has
    each component's own value under its name, before its weight, so that a curve of it means the same
    in runs with other weights. Of a component that was graded from parts itself, these follow as
    `<name>/<part>`.

    Raises:
        ValueError: components and weights do not have the same names, or a number is not finite.
    """
    if components.keys() != weights.keys():
        raise ValueError(
            f"weighted_sum: components {sorted(components)} and weights {sorted(weights)} have to "
            "have the same names. Give every component a weight; 0 only logs it."
        )
    parts: dict[str, Any] = {}
    score = 0.0
    for name, component in components.items():
        value, weight = _finite(name, component), _finite(f"{name}'s weight", weights[name])
        score += weight * value
        parts[name] = value
        if isinstance(component, Graded):
            parts |= {f"{name}/{part}": detail for part, detail in component.metadata.items()}
    return Graded(score, parts)


def _finite(name: str, value: float | bool | Graded) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"weighted_sum: {name} is {number}, but it has to be a finite number.")
    return number
