"""The same objects as `mint.recipe.renderers`, with the two that pages look for beside them."""

from typing import TYPE_CHECKING, Any

from mint.recipe import renderers as _renderers
from mint.recipe.model_info import (
    get_recommended_renderer_name as get_recommended_renderer_name,
)
from mint.recipe.supervised.common import (
    datum_from_model_input_weights as datum_from_model_input_weights,
)

if TYPE_CHECKING:
    from mint.recipe.renderers import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(_renderers, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_renderers)})
