"""A config as JSON that people read and compare.

The values in a config are the user's, live clients among them. They are looked at and nothing more:
not pickled, not copied, not called, and none of their attributes is asked for, other than the fields
of chz, dataclass and pydantic objects.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable
from enum import Enum
from pathlib import PurePath
from typing import Any

import chz
import numpy as np

LONGEST_REPR = 500
LONGEST_LIST = 1000
"""A data set in a config is not written out whole."""
DEEPEST = 20


def jsonable(value: Any) -> Any:
    """`value` as JSON can have it.

    chz, dataclass and pydantic objects become objects with a `__type__`; an enum its value; a class or
    function its name; anything else that JSON does not know its repr, cut at 500 characters.
    """
    return _described(value, ())


def _described(value: Any, around: tuple[int, ...]) -> Any:
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, Enum)):
        return value
    if id(value) in around or len(around) == DEEPEST:
        return f"<{type(value).__qualname__}>"
    inside = (*around, id(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(value)
    if isinstance(value, Enum):
        return _described(value.value, inside)
    if isinstance(value, np.generic):
        return _described(value.item(), inside)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, dict):
        return {_key(key): _described(each, inside) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return _list(list(value), inside)
    if isinstance(value, type) or inspect.isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    names = _field_names(type(value))
    if names is not None:
        return _object(value, names, inside)
    return _repr(value)


def _list(values: list[Any], inside: tuple[int, ...]) -> list[Any]:
    shown = [_described(each, inside) for each in values[:LONGEST_LIST]]
    left = len(values) - len(shown)
    return [*shown, f"… and {left} more"] if left else shown


def _object(value: Any, names: list[str], inside: tuple[int, ...]) -> dict[str, Any]:
    kind = type(value)
    fields = {name: _field(value, name) for name in names}
    return {
        "__type__": f"{kind.__module__}.{kind.__qualname__}",
        **{name: _described(each, inside) for name, each in fields.items()},
    }


def _field_names(kind: type) -> list[str] | None:
    """The names of an object's fields, by its class: an instance may make up any attribute."""
    if chz.is_chz(kind):
        return list(chz.chz_fields(kind))
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    fields = kind.__dict__.get("__pydantic_fields__")  # without importing pydantic
    return list(fields) if isinstance(fields, dict) else None


def _field(value: Any, name: str) -> Any:
    return _guarded(lambda: getattr(value, name), "<not set>")


def _key(key: Any) -> str:
    return key if isinstance(key, str) else _repr(_plain_key(key))


def _plain_key(key: Any) -> Any:
    return key.value if isinstance(key, Enum) else key


def _repr(value: Any) -> str:
    text = _guarded(lambda: repr(value), f"<{type(value).__qualname__}: its repr fails>")
    return text if len(text) <= LONGEST_REPR else text[: LONGEST_REPR - 1] + "…"


def _guarded(look: Callable[[], Any], otherwise: str) -> Any:
    try:
        return look()
    except Exception:  # a user's object may do anything; the dump is no reason to end a run
        return otherwise
