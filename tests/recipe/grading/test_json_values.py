"""JSON in a response."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mint.recipe.grading import extract_json, json_matches, json_values, schema_errors

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}), ("[]", []), ('Here: {"a": [1, 2]}. Or {"b": 2}.', {"a": [1, 2]}),
        ("```json\n[1, 2]\n```", [1, 2]), ("```\n{}\n```", {}), ('[1] see\n```json\n{"a": 1}\n```', {"a": 1}),
        ('[see below] {"a": 1}', {"a": 1}), ("{x} [1]", [1]), ('```python\nx = [y]\n``` {"a": 1}', {"a": 1}),
        ('{"a": {"b": 1}, "c', None), ('{"a": NaN}', None), ("[1e999]", None), ("[" + "9" * 5000 + "]", None),
        ("42", None), ("null", None), ('"text"', None), ("", None), ("[" * 10_000, None),
        ("[" * 5000 + "]" * 5000, None), ("[x " * 2000 + "[1]", None),
    ],
    ids=range(20),
)  # fmt: skip
def test_the_first_object_or_array_is_found(text: str, value: object):
    assert extract_json(text) == value


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=50)
@given(st.lists(_values) | st.dictionaries(st.text(), _values))
def test_every_object_and_array_is_found_in_prose(value: list[Any] | dict[str, Any]):
    assert extract_json(f"So: {json.dumps(value)} is it.") == value


def test_a_value_is_checked_against_a_schema():
    assert json_matches('I think {"name": "Ada", "age": 36}', PERSON)
    assert not json_matches('{"name": "Ada", "age": -1}', PERSON)
    assert not json_matches("nothing", PERSON)
    assert sorted(schema_errors({"name": 1, "x": 0}, PERSON)) == [
        "$.name: 1 is not of type 'string'",
        "$: Additional properties are not allowed ('x' was unexpected)",
    ]


def test_references_within_a_schema_are_followed_and_others_are_refused():
    inside = {"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}
    assert schema_errors([1], inside) == []
    assert schema_errors(["1"], inside) == ["$[0]: '1' is not of type 'integer'"]
    with pytest.raises(
        ValueError, match=r"refers to 'http://127\.0\.0\.1:9/a'.*nothing is fetched"
    ):
        schema_errors([1], {"$ref": "http://127.0.0.1:9/a"})
    with pytest.raises(ValueError, match="refers to"):
        schema_errors([1], {"$ref": "file:///etc/passwd"})


def test_nothing_is_fetched_for_a_schema(port_of_requests: tuple[int, list[str]]):
    port, requests = port_of_requests
    with pytest.raises(ValueError, match="nothing is fetched"):
        schema_errors([1], {"$ref": f"http://127.0.0.1:{port}/schema.json"})
    assert requests == []


@pytest.fixture
def port_of_requests() -> Iterator[tuple[int, list[str]]]:
    """A web server on this machine that has a schema at every path, and the paths it was asked for."""
    requests: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port, requests
        server.shutdown()


def test_the_search_for_a_value_is_given_up(monkeypatch: pytest.MonkeyPatch):
    tries = []
    read = json_values._read
    monkeypatch.setattr(json_values, "_read", lambda *where: (tries.append(where), read(*where))[1])

    assert extract_json('["' * 10_000) is None

    assert len(tries) == 1000


def test_a_schema_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"not a JSON schema: at \$\.type"):
        json_matches("{}", {"type": "objekt"})


def test_a_value_made_to_be_checked_for_ever_is_cut():
    slow = {"type": "array", "items": {"type": "string", "pattern": "^(a+)+$"}}
    (said,) = schema_errors(["a" * 50 + "!"], slow, timeout_s=0.5)
    assert said == "$: the check was cut (timeout; limit 0.5 s)"
    assert schema_errors(["aa"], slow) == []
