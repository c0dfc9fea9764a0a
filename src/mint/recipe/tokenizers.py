"""Tokenizers by the name of their model. (first cut)"""

import threading
from collections.abc import Callable
from typing import Any, cast

from mint.recipe.exceptions import RecipeError
from mint.recipe.text_encoder import Tokenizer as Tokenizer

_factories: dict[str, Callable[[], Tokenizer]] = {}
_made: dict[str, Tokenizer] = {}
_lock = threading.RLock()


def register_tokenizer(name: str, factory: Callable[[], Tokenizer]) -> None:
    """Let `get_tokenizer(name)` give what the factory makes, once per process."""
    with _lock:
        _factories[name] = factory
        _made.pop(name, None)


def unregister_tokenizer(name: str) -> bool:
    """Forget a registered tokenizer. Returns whether there was one."""
    with _lock:
        _made.pop(name, None)
        return _factories.pop(name, None) is not None


def is_tokenizer_registered(name: str) -> bool:
    return name in _factories


def get_registered_tokenizer_names() -> list[str]:
    return sorted(_factories)


def get_tokenizer(model_name: str) -> Any:
    """The tokenizer of a model, the same object for a name throughout the process."""
    with _lock:
        if model_name not in _made:
            if model_name not in _factories:
                raise RecipeError(f"no tokenizer for {model_name!r}")
            _made[model_name] = cast(Any, _factories[model_name])()
        return _made[model_name]
