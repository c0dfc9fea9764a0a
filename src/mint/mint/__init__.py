"""Our additions to upstream's names: errors, settings, and operations of our own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mint.client.settings import ClientSettings as ClientSettings
from mint.client.settings import EmbeddedSettings as EmbeddedSettings
from mint.client.tokenizer import tokenizer_folder as tokenizer_folder
from mint.core.errors import ConfigError as ConfigError
from mint.core.errors import MintError as MintError
from mint.core.errors import ServerFaultError as ServerFaultError
from mint.core.errors import UnsupportedError as UnsupportedError
from mint.core.errors import UserError as UserError

if TYPE_CHECKING:
    from mint.client.extensions import InterpolatedCheckpoint as InterpolatedCheckpoint
    from mint.client.extensions import ReverseKLDatum as ReverseKLDatum
    from mint.client.extensions import forward_backward_reverse_kl as forward_backward_reverse_kl
    from mint.client.extensions import (
        forward_backward_reverse_kl_async as forward_backward_reverse_kl_async,
    )
    from mint.client.extensions import interpolate_checkpoints as interpolate_checkpoints
    from mint.client.extensions import (
        interpolate_checkpoints_async as interpolate_checkpoints_async,
    )

_OPERATIONS = (
    "InterpolatedCheckpoint", "ReverseKLDatum", "forward_backward_reverse_kl",
    "forward_backward_reverse_kl_async", "interpolate_checkpoints", "interpolate_checkpoints_async",
)  # fmt: skip
"""They need a recent SDK; the rest, and so the recipes, works with an older one as well."""


def __getattr__(name: str) -> Any:
    if name in _OPERATIONS:
        value = getattr(import_module("mint.client.extensions"), name)
    elif name == "renderers":
        value = import_module("mint.mint.renderers")  # light until then: recipes are another room
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_OPERATIONS, "renderers"})
