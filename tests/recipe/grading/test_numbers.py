"""Numbers as people and models write them."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mint.recipe.grading import extract_number, number_matches, read_number
from mint.recipe.grading.numbers import MAX_CHARS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42), ("+7", 7), ("-7", -7), ("−4", -4), ("-.5", "-1/2"), ("3.", 3), ("0.10", "1/10"),
        ("1,234.5", "2469/2"), ("1,234,567", 1234567), ("1 234", 1234), ("1\u202f234.5", "2469/2"),
        ("1'234", 1234), ("1_000", 1000), ("1{,}234", 1234), ("1,\\!234", 1234), ("1\\,234", 1234),
        ("50%", "1/2"), ("50 percent", "1/2"), ("12.5\\%", "1/8"), ("5 per cent", "1/20"),
        ("3/4", "3/4"), ("-3 / 4", "-3/4"), ("1 1/2", "3/2"), ("½", "1/2"), ("1½", "3/2"),
        ("\\frac{1}{2}", "1/2"), ("-\\frac{3}{4}", "-3/4"), ("\\frac{-1}{2}", "-1/2"),
        ("\\dfrac12", "1/2"), ("1\\frac{1}{2}", "3/2"), ("\\frac{1,000}{3}", "1000/3"),
        ("6e3", 6000), ("1e-3", "1/1000"), ("1.5 × 10^3", 1500), ("1.5 \\times 10^{-3}", "3/2000"),
        ("2*10^3", 2000), ("2^{10}", 1024), ("10²", 100), ("10⁻²", "1/100"), ("2**10", 1024),
        ("-2^2", -4), ("$5", 5), ("-$5", -5), ("$-5$", -5), ("\\$18", 18), ("€3.20", "16/5"),
        ("１２", 12), ("٤٢", 42), ("90°", 90), ("5 km", 5), ("5km", 5),
    ],
)  # fmt: skip
def test_one_number_is_read_exactly(text: str, value: int | str):
    assert extract_number(text) == Fraction(value)
    assert extract_number(f"So the answer is {text}.") == Fraction(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("First I compute 3 * 4 = 12, then 12 - 20 = -8.", -8),
        ("x = 5 - 7", 7), ("5-7", 7), ("between 5–7", 7), ("10 -3", -3), ("it is = - 5", -5),
        ("- 5\n- 6", 6), ("1, 2, 3", 3), ("#### 1,234", 1234), ("**5**", 5), ('{"answer": 5}', 5),
        ("答案是42。", 42), ("答案是 -42 元", -42), ("It has 25 m^2", 25), ("25 m²", 25), ("42, for x_1", 42),
        ("7, as in the 2nd case", 7), ("3 COVID-19 tests of GPT-4 and x2", 3), ("rises 5% to 7%.", "7/100"),
    ],
)  # fmt: skip
def test_without_a_mark_the_last_number_counts(text: str, value: int | str):
    assert extract_number(text) == Fraction(value)


@pytest.mark.parametrize(
    "text",
    [
        "", "no number", "x2", "2nd", "1,23", "It is 7. Or 1,23.", "1.234,5", "0,5", "12:30", "1.2.3",
        "3/4/2025", "1,2,3", "(3,4)", "1/0", "1e999999999", "10^10^10", "10**10**10", "2^x", "0^{-1}",
        "7 or so, but 1e999999999", "2\\pi", "\\sqrt{2}", "\\frac{\\pi}{2}", "x/2", "9" * 2000,
    ],
)  # fmt: skip
def test_what_has_no_clear_value_is_no_answer_and_no_earlier_number_steps_in(text: str):
    assert extract_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I try 7. \\boxed{42} Done in 3 steps.", 42), ("\\boxed{1} no, \\boxed{2}", 2),
        ("\\boxed{x = 5}", 5), ("\\boxed{x \\approx 3.14}", "3.14"), ("\\boxed{\\frac{1}{2}}", "1/2"),
        ("\\boxed{5 \\text{ cm}}", 5), ("\\boxed{10\\text{ cm}^2}", 10), ("\\boxed{\\text{5}}", 5),
        ("\\boxed{90^\\circ}", 90), ("\\boxed{- 5}", -5), ("\\boxed{\\$1{,}234.50}", "1234.5"),
        ("<answer>42 apples</answer> of 50", 42), ("<answer>\\boxed{3}</answer>", 3),
        ("<answer>The answer is 42.</answer>", 42), ("\\boxed{1} <answer>2</answer> \\boxed{3}", 2),
    ],
)  # fmt: skip
def test_a_marked_answer_counts_and_nothing_beside_it(text: str, value: int | str):
    assert extract_number(text) == Fraction(value)


@pytest.mark.parametrize(
    "marked",
    [
        "",
        "2x",
        "2 + 3",
        "(3, 4)",
        "3, 4",
        "x > 5",
        "2\\pi",
        "\\sqrt{4}",
        "x",
        "5!",
        "\\frac{x}{2}",
        "5-7",
    ],
)
def test_a_mark_around_something_else_is_no_number(marked: str):
    assert extract_number(f"First 7. \\boxed{{{marked}}}") is None
    assert extract_number(f"First 7. <answer>{marked}</answer>") is None


def test_a_number_is_held_up_to_a_thousand_digits():
    assert extract_number("1e1000") == 10**1000
    assert extract_number("9" * 1000) == 10**1000 - 1
    assert extract_number("1e1001") is None
    assert extract_number("9" * 1001) is None


def test_of_a_long_text_the_end_is_read_and_no_number_is_cut():
    assert extract_number("7 " + " " * MAX_CHARS) is None
    assert extract_number("1234567" + " " * (MAX_CHARS - 3)) is None  # not 567
    assert extract_number("7 " + "a " * MAX_CHARS + "is -8") == -8
    assert extract_number("\\boxed{7}" + "a " * MAX_CHARS + "8") == 7


def test_read_number_takes_a_text_that_is_one_number():
    assert read_number("about -3 apples") == -3
    assert read_number("3 apples and 4 pears") is None
    assert read_number("1 " * 100_000) is None


def test_numbers_are_compared_exactly_unless_a_tolerance_is_given():
    assert number_matches("0.3", Fraction("0.1") + Fraction("0.2"))
    assert number_matches("0.1", 0.1)
    assert not number_matches("0.10000001", 0.1)
    assert number_matches("0.10000001", 0.1, absolute=1e-6)
    assert number_matches("3.14", math.pi, relative=1e-3)
    assert not number_matches("3.14", math.pi, relative=1e-4)
    assert not number_matches("3.14", math.pi)
    assert number_matches("1.5", 1, absolute=0.5)
    assert not number_matches("1.51", 1, absolute=0.5)
    assert number_matches("-101", -100, relative=0.01)


@pytest.mark.parametrize(
    "expected", ["1/2", "50%", "\\frac{1}{2}", 0.5, Decimal("0.5"), Fraction(1, 2)]
)
def test_the_expected_number_may_be_written_in_any_way(expected):
    assert number_matches("One half, 0.50.", expected)


def test_a_percentage_is_a_share_or_a_number_as_the_question_has_it():
    assert number_matches("It grew by 50%.", 0.5)
    assert not number_matches("It grew by 50%.", 50)
    assert number_matches("It grew by 50%.", 50, percent="number")
    assert number_matches("It grew by 50.", "50%", percent="number")
    with pytest.raises(ValueError, match=r"'fraction'.*or 'number'"):
        number_matches("50%", 50, percent="share")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "expected", ["forty-two", "", "1,23", math.nan, math.inf, Decimal("NaN"), None, True]
)
def test_an_expected_answer_that_is_no_number_is_refused(expected):
    with pytest.raises(ValueError, match=r"expected=.* is not a finite number"):
        number_matches("42", expected)


def test_a_tolerance_below_0_is_refused():
    with pytest.raises(ValueError, match="absolute=-1"):
        number_matches("42", 42, absolute=-1)


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9
    )
)
def test_every_decimal_is_read_as_it_is_printed(number: Decimal):
    for form in (
        f"{number:f}",
        f"{number:,f}",
        f"{number:,f}".replace(",", "_"),
        f"\\boxed{{{number:f}}}",
    ):
        assert extract_number(form) == Fraction(number)


@given(st.integers(-999, 999), st.integers(1, 999))
def test_every_fraction_is_read_in_each_of_its_forms(top: int, bottom: int):
    for form in (f"{top}/{bottom}", f"\\frac{{{top}}}{{{bottom}}}", f"{top / 1:.0f} / {bottom}"):
        assert extract_number(form) == Fraction(top, bottom)
