"""What is said once about a user's class, not once for each of its thousand instances."""

import logging
from weakref import WeakKeyDictionary

_said: WeakKeyDictionary[type, set[str]] = WeakKeyDictionary()


def say_once(log: logging.Logger, about: type, text: str, *arguments: object) -> None:
    """Log a warning, unless it has been said about this class before."""
    said = _said.setdefault(about, set())
    if text not in said:
        said.add(text)
        log.warning(text, *arguments)
