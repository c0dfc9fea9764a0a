"""Evaluations: see `mint.recipe.eval.evaluators`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mint.recipe.eval import evaluators as evaluators

__all__ = ["evaluators"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
