"""Reading and comparing answers: pure, so each rule by itself."""

import math

import pytest

from mint.recipe.exceptions import DataValidationError
from mint.recipe.sandbox.answers import (
    MOST_DIGITS,
    MalformedAnswerError,
    parse_answer,
    plain,
    same_text,
    same_value,
)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "Expecting value"),
        (b"1 2", "Extra data"),
        (b"NaN", "NaN is no JSON number"),
        (b"[-Infinity]", "-Infinity is no JSON number"),
        (b"1e999", "beyond every float"),
        (b"9" * (MOST_DIGITS + 1), "digits"),
        (b"-" + b"9" * (MOST_DIGITS + 1), "digits"),
        (b'"\xff"', "decode"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a":' * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_plain_value_is_malformed_and_says_why(answer: bytes, why: str):
    with pytest.raises(MalformedAnswerError, match=why):
        parse_answer(answer)


def test_a_long_integer_is_read_whole():
    assert parse_answer(b"9" * MOST_DIGITS) == 10**MOST_DIGITS - 1


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (1, 1.0), (0.1 + 0.2, 0.3), (1e300, 1e300), ([1, [2]], [1, [2]]), ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
        (None, None), (True, True), ("", ""), (10**400, 10**400), (0.0, -0.0), (1e-12, 0), (-1e-12, 0.0),
    ],
)  # fmt: skip
def test_values_that_are_the_same(got: object, expected: object):
    assert same_value(got, expected)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (True, 1), (1, True), (False, 0), (0.0, False), (None, 0), ("1", 1), (1, "1"), ([1], 1), ([1, 2], [2, 1]),
        ([1], [1, 2]), ({"a": 1}, {"a": 1, "b": 2}), ({"a": 1, "b": 2}, {"a": 1}), ([], {}), ([], None),
        (10**400, 1.0), (1.0, 10**400), (0.1, 0.1001), (0, 1e-12), (0.0, 6.6e-34), (1e-20, 6.6e-34), (-1e-12, 1e-12), (10**17, 10**17 + 1), ("a", "A"),
    ],
)  # fmt: skip
def test_values_that_are_not(got: object, expected: object):
    assert not same_value(got, expected)  # pyright: ignore[reportArgumentType]


def test_comparing_goes_no_deeper_than_what_is_expected():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert not same_value(deep, [[1]])  # pyright: ignore[reportArgumentType]


def test_a_trusted_value_is_what_json_makes_of_it():
    assert plain("x", {"a": (1, 2), 3: None}) == {"a": [1, 2], "3": None}
    for value in (math.nan, {1}, object(), b"x"):
        with pytest.raises(DataValidationError, match="x = "):
            plain("x", value)


def test_texts_are_compared_without_white_space_at_the_ends_of_lines():
    assert same_text("a  \nb\n\n", "a\nb")
    assert same_text("a\r\nb", "a\nb")
    assert not same_text("a\n\nb", "a\nb")
    assert not same_text(" a", "a")
