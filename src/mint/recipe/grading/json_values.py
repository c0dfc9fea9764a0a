"""JSON in a response: found, and checked against a schema."""

import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from mint.recipe.grading.optional import needed
from mint.recipe.grading.workers import Cut, WorkerPool
from mint.recipe.json_numbers import finite_float, refused_constant

_FENCE = re.compile(r"```[ \t]*+(?:json|JSON)?[ \t]*+\n\s*+(.*?)```", re.DOTALL)

_BRACKET = re.compile(r"[{\[]")

_MOST_TRIES = 1000
"""Brackets that begin no JSON before the search is given up. A failed try costs time that grows with
the text before it, since Python's error counts the lines up to its place."""


class _Broken(ValueError):
    """What was begun as JSON cannot be read as it; `at`: where reading ended."""

    def __init__(self, at: int) -> None:
        super().__init__(f"no JSON at {at}")
        self.at = at


def extract_json(text: str) -> dict[str, Any] | list[Any] | None:
    """The first JSON object or array of a response: of its fenced blocks (```json), else of all of it.

    None: there is none, or the first one breaks off; no inner part is taken for it. `NaN`, `Infinity`
    and numbers beyond a float are no JSON here, nor is what is nested hundreds deep. A bare number,
    string or null is no answer: it could not be told from prose.
    """
    for fenced in _FENCE.finditer(text):
        if (value := _first_value(fenced[1])) is not None:
            return value
    return _first_value(text)


def json_matches(text: str, schema: Mapping[str, Any] | bool, *, timeout_s: float = 5.0) -> bool:
    """Whether the response holds JSON (`extract_json`) that the schema allows (`schema_errors`)."""
    value = extract_json(text)
    return value is not None and not schema_errors(value, schema, timeout_s=timeout_s)


def schema_errors(
    value: Any, schema: Mapping[str, Any] | bool, *, timeout_s: float = 5.0
) -> list[str]:
    """What the schema has against a JSON value: the first ten, each with its place; empty if nothing.

    The dialect is the one that `$schema` names, else 2020-12. `format` is not checked. References
    lead to places of the schema itself: nothing is ever fetched. A value can be made so that checking
    it takes for ever (a `pattern`, nested `anyOf`), so a process does it that is killed at its limit;
    being cut is then the one error.

    Raises:
        ValueError: the schema is not one, or refers to something outside itself.
        ImportError: the extra `grading` is not installed.
    """
    _check(json.dumps(schema, sort_keys=True))
    try:
        answer = _workers().ask("check_schema", {"value": value, "schema": schema}, timeout_s)
    except RecursionError:
        answer = Cut("recursion")
    if isinstance(answer, Cut):
        return [f"$: the check was cut ({answer.reason}; limit {timeout_s:g} s)"]
    if answer.get("failure"):
        raise ValueError(
            f"the schema refers to {answer['reference']!r}, which is not part of it, and nothing is "
            "fetched. Copy what it refers to into the schema's $defs."
        )
    return answer["errors"]


def _first_value(text: str) -> dict[str, Any] | list[Any] | None:
    """Tries bracket after bracket. One within what was just read in vain is a part of that."""
    at = 0
    for _ in range(_MOST_TRIES):
        bracket = _BRACKET.search(text, at)
        if bracket is None:
            return None
        try:
            return _read(text, bracket.start())
        except _Broken as broken:
            at = broken.at
    return None


def _read(text: str, start: int) -> Any:
    try:
        return _DECODER.raw_decode(text, start)[0]
    except json.JSONDecodeError as error:
        raise _Broken(max(error.pos, start + 1)) from None
    except (ValueError, RecursionError):  # a number or a depth that is none of JSON's
        raise _Broken(len(text)) from None


_DECODER = json.JSONDecoder(parse_float=finite_float, parse_constant=refused_constant)


@lru_cache(maxsize=100)
def _check(schema: str) -> None:
    validators = needed("jsonschema.validators", "schema_errors")
    wanted = json.loads(schema)
    try:
        validators.validator_for(wanted).check_schema(wanted)
    except needed("jsonschema", "schema_errors").SchemaError as error:
        raise ValueError(
            f"the schema is not a JSON schema: at {error.json_path}, {error.message[:300]}"
        ) from None


@cache
def _workers() -> WorkerPool:
    return WorkerPool(["jsonschema"])
