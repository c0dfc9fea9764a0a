"""What is said once about a user's class, not once for each of its thousand instances."""

import logging
from typing import Any
from weakref import WeakKeyDictionary

_said: WeakKeyDictionary[type, set[str]] = WeakKeyDictionary()


def say_once(log: logging.Logger, about: type, text: str, *arguments: object) -> None:
    """Log a warning, unless it has been said about this class before."""
    said = _said.setdefault(about, set())
    if text not in said:
        said.add(text)
        log.warning(text, *arguments)


def hand_on(
    log: logging.Logger,
    to: object,
    setter: str,
    value: Any,
    otherwise: str = "it is played without",
) -> None:
    """Tell a user's object a setting, if it has the method for it; say once of its class if not."""
    method = getattr(to, setter, None)
    if method is not None:
        method(value)
    else:
        say_once(log, type(to), f"%s has no {setter}; {otherwise}.", type(to).__name__)
