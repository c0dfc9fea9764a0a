"""Tokenizers by the name of their model.

    registered  >  a local folder  >  the hub's cache on this machine  >  the server  >  the hub

The first that has it gives it, and it stays the same object for the process: renderers keep one
private copy per object.
"""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from mint.core.errors import MintError
from mint.recipe.exceptions import ConfigurationError
from mint.recipe.text_encoder import Tokenizer as Tokenizer

_factories: dict[str, Callable[[], Tokenizer]] = {}
_made: dict[str, Tokenizer] = {}
_locks: dict[str, threading.RLock] = {}  # one a name: a factory may need another tokenizer


# -------------------------------------------------------------- registered


def register_tokenizer(name: str, factory: Callable[[], Tokenizer]) -> None:
    """Let `get_tokenizer(name)` give what the factory makes, once per process."""
    _factories[name] = factory
    _made.pop(name, None)


def unregister_tokenizer(name: str) -> bool:
    """Forget a registered tokenizer. Returns whether there was one."""
    _made.pop(name, None)
    return _factories.pop(name, None) is not None


def is_tokenizer_registered(name: str) -> bool:
    return name in _factories


def get_registered_tokenizer_names() -> list[str]:
    return sorted(_factories)


# ------------------------------------------------------------------ by name


def get_tokenizer(model_name: str) -> Any:
    """The tokenizer of a model.

    Args:
        model_name: a registered name, a folder with a tokenizer.json, or a model's name. What
            follows a colon in it is a serving variant, which has the model's tokenizer.

    Raises:
        ConfigurationError: nobody has it; the message says what was tried and the ways to give it.
    """
    return _known_or(model_name, lambda: _found(model_name))


def provide_from(client: Any, model_name: str) -> Any:
    """The tokenizer of a model, from a connected client unless it is registered or local.

    `get_tokenizer(model_name)` then answers with it, wherever the client is connected to.

    Args:
        client: a training or sampling client of this model.
    """

    def find() -> Any:
        folder = local_folder(model_name)
        return client.get_tokenizer() if folder is None else _load(folder)

    return _known_or(model_name, find)


def _known_or(model_name: str, find: Callable[[], Any]) -> Any:
    known = _made.get(model_name)
    if known is None:
        with _locks.setdefault(model_name, threading.RLock()):
            known = _made.get(model_name)
            if known is None:
                factory = _factories.get(model_name)
                known = _made[model_name] = cast(Any, factory() if factory else find())
    return known


def _found(model_name: str) -> Any:
    """From this machine, else the server, else the hub."""
    folder, said = local_folder(model_name), ""
    if folder is None:
        folder, said = _from_server(model_name)
    try:
        return _load(folder or without_variant(model_name))
    except (OSError, ValueError) as error:
        # Of a hub that cannot be reached, the first line tells all.
        raise ConfigurationError(
            f"no tokenizer for {model_name!r}. The server: {said or 'has it, see below'}. Loading "
            f"it from {folder or 'a hub'}: {str(error).partition(chr(10))[0]} "
            "Give it in one of three ways: register_tokenizer(name, factory) for a tokenizer of "
            "your own; a folder with its tokenizer.json as the model's name; or a server that "
            "offers the model (MINT_BASE_URL) or a hub that can be reached."
        ) from error


def _load(source: Path | str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigurationError(
            f"loading a tokenizer needs transformers ({error}): pip install 'mint-rl[recipe]'. A "
            "registered tokenizer (register_tokenizer) does without."
        ) from error
    return AutoTokenizer.from_pretrained(str(source))


# ------------------------------------------------------------------- files


def local_folder(model_name: str) -> Path | None:
    """A folder on this machine with the tokenizer of a model: one of that name, or the hub's
    cache. Asks nobody."""
    folder = Path(model_name).expanduser()
    if (folder / "tokenizer.json").is_file():
        return folder
    return _in_hub_cache(without_variant(model_name))


def model_file(model_name: str, file_name: str) -> Any:
    """A JSON file of a model, such as config.json, from this machine or the server; None if neither
    has it. Never from a hub."""
    folder = local_folder(model_name) or _from_server(model_name)[0]
    path = None if folder is None else folder / file_name
    return json.loads(path.read_text()) if path is not None and path.is_file() else None


def has_chat_template(model_name: str) -> bool | None:
    """Whether the model's tokenizer has a chat template, as far as this process or machine knows;
    None if it knows nothing. Asks nobody."""
    if _made.get(model_name) is not None or model_name in _factories:
        return bool(getattr(get_tokenizer(model_name), "chat_template", None))
    folder = local_folder(model_name)
    if folder is None:
        return None
    config = folder / "tokenizer_config.json"
    in_config = config.is_file() and bool(json.loads(config.read_text()).get("chat_template"))
    return in_config or (folder / "chat_template.jinja").is_file()


def without_variant(model_name: str) -> str:
    """The model's name without what a colon in it begins: how it is served."""
    return model_name.partition(":")[0]


def _in_hub_cache(model_name: str) -> Path | None:
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        found = try_to_load_from_cache(model_name, "tokenizer.json")
    except HFValidationError:
        return None  # no name that a hub could have
    return Path(found).parent if isinstance(found, str) else None


def _from_server(model_name: str) -> tuple[Path | None, str]:
    """A folder with the files that the server has of a model, or None and why not."""
    from mint.mint import tokenizer_folder

    try:
        folder = tokenizer_folder(model_name)
    except MintError as error:
        return None, str(error)
    return folder, "" if folder else "none is configured or running, or it hands none out"
