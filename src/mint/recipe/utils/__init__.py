"""Doors for code that comes from elsewhere: logging, learning-rate schedules, list helpers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mint.recipe.utils import lr_scheduling as lr_scheduling
    from mint.recipe.utils import misc_utils as misc_utils
    from mint.recipe.utils import ml_log as ml_log

__all__ = ["lr_scheduling", "misc_utils", "ml_log"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
