"""A config as JSON: looked at and nothing more."""

import copy
import enum
import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chz
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mint.recipe.stores.jsonable import jsonable


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Limits:
    turns: int = 3
    names: tuple[str, ...] = ("a",)


class Wire(BaseModel):
    rank: int = 8


@chz.chz
class Inner:
    value: Any


@chz.chz
class Config:
    rate: float
    limits: Limits = Limits()
    wire: Wire = chz.field(default_factory=Wire)
    color: Color = Color.RED
    inner: Any = None


class LiveClient:
    """Minds whatever is done to it but looking."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    def __call__(self) -> None:
        raise AssertionError("called")

    def __deepcopy__(self, memo: Any) -> None:
        raise AssertionError("copied")

    def __reduce__(self) -> Any:
        raise AssertionError("pickled")

    def __iter__(self) -> Any:
        raise AssertionError("walked through")

    def __repr__(self) -> str:
        return "<live client>"


def test_nested_values_are_objects_with_their_type_and_enums_are_values():
    found = jsonable(Config(rate=0.5))
    here = __name__

    assert found == {
        "__type__": f"{here}.Config",
        "rate": 0.5,
        "limits": {"__type__": f"{here}.Limits", "turns": 3, "names": ["a"]},
        "wire": {"__type__": f"{here}.Wire", "rank": 8},
        "color": "red",
        "inner": None,
    }


def test_a_live_client_is_not_pickled_copied_called_or_asked():
    """Trap 13."""
    client = LiveClient()
    with pytest.raises(AssertionError):
        copy.deepcopy(client)
    with pytest.raises(AssertionError):
        pickle.dumps(client)

    found = jsonable(Config(rate=1.0, inner=Inner(value=[client])))
    assert found["inner"]["value"] == ["<live client>"]


def test_a_long_repr_is_cut_and_one_that_fails_is_replaced():
    class Long:
        def __repr__(self) -> str:
            return "x" * 501

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert jsonable(Long()) == "x" * 499 + "…"
    assert jsonable(Broken()).endswith("Broken: its repr fails>")


def test_a_field_that_was_never_set_says_so():
    @dataclass
    class Lazy:
        later: int = field(init=False)

    assert jsonable(Lazy())["later"] == "<not set>"


def test_values_that_json_does_not_have_become_ones_that_it_has():
    assert jsonable([np.float32(0.5), float("nan"), Path("a/b"), {Color.RED: 1}, {3}, len, Path]) == [
        0.5, "nan", "a/b", {"'red'": 1}, [3], "builtins.len", "pathlib.Path",
    ]  # fmt: skip


def test_a_value_inside_itself_ends():
    loop: list[Any] = []
    loop.append(loop)
    assert jsonable(loop) == ["<list>"]


def test_a_data_set_in_a_config_is_not_written_out_whole():
    found = jsonable(list(range(2500)))
    assert found[:2] == [0, 1]
    assert found[1000:] == ["… and 1500 more"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(values)
def test_whatever_it_is_given_is_strict_json(value: Any):
    json.dumps(jsonable(value), allow_nan=False)
