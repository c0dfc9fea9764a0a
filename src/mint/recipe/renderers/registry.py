"""Renderers by name: those of this package, and those that a user registered."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from mint.recipe.exceptions import RendererError
from mint.recipe.renderers.base import Renderer
from mint.recipe.text_encoder import Tokenizer
from mint.recipe.tokenizers import get_tokenizer

Factory: TypeAlias = Callable[[Tokenizer, Any], Renderer]
"""Takes a tokenizer and an image processor (None for text)."""

BUILT_IN = {
    "hf_template": ("hf_template", "HFTemplateRenderer"),
    "llama3": ("llama3", "Llama3Renderer"),
    "qwen3": ("qwen3", "Qwen3Renderer"),
    "qwen3_disable_thinking": ("qwen3", "Qwen3DisableThinkingRenderer"),
    "qwen3_instruct": ("qwen3", "Qwen3InstructRenderer"),
    "qwen3_5": ("qwen3_5", "Qwen35Renderer"),
    "qwen3_5_disable_thinking": ("qwen3_5", "Qwen35DisableThinkingRenderer"),
    "role_colon": ("role_colon", "RoleColonRenderer"),
}
"""Name -> module and class; a family is imported when first asked for."""

OUTSIDE = "renderers/"
"""Names beginning so are those of the package "renderers", if it is installed."""

_registered: dict[str, Factory] = {}
_made: "OrderedDict[tuple[Any, ...], tuple[Renderer, Tokenizer, Any]]" = OrderedDict()
"""By what was asked for, tokenizer and processor by their addresses: they are held here beside the
renderer, so that no other object comes to lie there."""
_lock = threading.Lock()

KEPT = 32
"""Renderers made last. User code asks for its renderer once per group of rollouts."""


def get_renderer(
    name: str,
    tokenizer: Tokenizer,
    image_processor: Any = None,
    model_name: str | None = None,
) -> Renderer:
    """The renderer of this name for this tokenizer; asked again, the same one, in microseconds.

    Args:
        name: one that was registered, or one of this package's, or "renderers/<name>".
        image_processor: for families that read images.
        model_name: under which get_tokenizer finds this tokenizer again; a pickled renderer needs
            it. None: what the tokenizer itself says (`name_or_path`).

    Raises:
        RendererError: no such name; the message lists those there are. Or the tokenizer lacks a
            token that the family needs.
    """
    key = (name, id(tokenizer), id(image_processor), model_name)
    known = _made.get(key)
    if known is not None:
        return known[0]
    factory = _registered.get(name) or _built_in(name)
    renderer = factory(tokenizer, image_processor)
    renderer.registered_as = (name, model_name or getattr(tokenizer, "name_or_path", None))
    with _lock:
        _made[key] = renderer, tokenizer, image_processor
        while len(_made) > KEPT:
            _made.popitem(last=False)
    return renderer


def register_renderer(name: str, factory: Factory) -> None:
    """Let `get_renderer(name, …)` give what the factory makes. A name of this package's is taken
    over; a name of your own should say whose it is ("me/mine")."""
    _forget(name)
    _registered[name] = factory


def unregister_renderer(name: str) -> bool:
    """Forget a registered renderer. Returns whether there was one."""
    _forget(name)
    return _registered.pop(name, None) is not None


def is_renderer_registered(name: str) -> bool:
    return name in _registered


def get_registered_renderer_names() -> list[str]:
    """Names that users registered; those of this package are not among them."""
    return sorted(_registered)


def rebuilt(name: str, model_name: str | None) -> Renderer:
    """A renderer out of a pickle, with the tokenizer of its model.

    Raises:
        RendererError: it was made for a tokenizer that has no name here.
    """
    if model_name is None:
        raise RendererError(
            f"a pickled renderer {name!r} cannot be rebuilt: its tokenizer had no name. Make it "
            "with get_renderer(..., model_name=...), a name that get_tokenizer knows there too "
            "(register_tokenizer)."
        )
    return get_renderer(name, get_tokenizer(model_name), model_name=model_name)


def _built_in(name: str) -> Factory:
    if name.startswith(OUTSIDE):
        outside = import_module("mint.recipe.renderers.outside")
        return lambda tokenizer, _: outside.OutsideRenderer(tokenizer, name.removeprefix(OUTSIDE))
    if name not in BUILT_IN:
        known = ", ".join(sorted({*BUILT_IN, *_registered}))
        raise RendererError(
            f'unknown renderer {name!r}. Known: {known}; "{OUTSIDE}<name>" for those of the '
            "package renderers. Your own: register_renderer(name, factory)."
        )
    module, kind = BUILT_IN[name]
    family = getattr(import_module(f"mint.recipe.renderers.{module}"), kind)
    return lambda tokenizer, _: family(tokenizer)


def _forget(name: str) -> None:
    with _lock:
        for key in [key for key in _made if key[0] == name]:
            del _made[key]
