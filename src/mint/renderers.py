"""The same objects as `mint.recipe.renderers`, under the name that other pages use."""

from typing import TYPE_CHECKING, Any

from mint.recipe import renderers as _renderers

if TYPE_CHECKING:
    from mint.recipe.renderers import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(_renderers, name)


def __dir__() -> list[str]:
    return dir(_renderers)
