"""The same objects as `mint.recipe.completers`, under the name that other pages use."""

from typing import TYPE_CHECKING, Any

from mint.recipe import completers as _completers

if TYPE_CHECKING:
    from mint.recipe.completers import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(_completers, name)


def __dir__() -> list[str]:
    return dir(_completers)
