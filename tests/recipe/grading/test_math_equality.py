"""Mathematical equality, with limits that hold."""

import asyncio
import logging
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.recipe.grading.hostile import TEXTS

from mint.recipe.grading import compare_math, math_equal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{\\frac{2}{4}}", "1/2"), ("\\boxed{0.5}", "\\frac{1}{2}"), ("<answer>0.5</answer>", "1/2"),
        ("It is $x^2+2x+1$.", "(x+1)^2"), ("\\boxed{x=3}", "3"), ("\\boxed{\\{1,2\\}}", "\\{2,1\\}"),
        ("\\boxed{\\sqrt{8}}", "2\\sqrt{2}"), ("\\boxed{1,234}", "1234"), ("\\boxed{(1, 2)}", "(1,2)"),
        ("\\boxed{3} \\boxed{4}", "$4$"),
    ],
)  # fmt: skip
def test_the_same_in_another_form_is_equal(text: str, expected: str):
    assert math_equal(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{-5}", "5"),
        ("\\boxed{(2, 1)}", "(1,2)"),
        ("\\boxed{x^2}", "x^3"),
        ("\\boxed{4} \\boxed{3}", "4"),
    ],
)
def test_something_else_is_different(text: str, expected: str):
    assert compare_math(text, expected).reason == "different"


def test_a_response_without_mathematics_has_no_answer():
    assert compare_math("I do not know", "5").reason == "no_answer"


def test_an_expected_answer_that_is_none_is_refused():
    with pytest.raises(ValueError, match="cannot be read as mathematics"):
        compare_math("5", "")


def test_only_the_worker_loads_the_library():
    script = """
import sys
from mint.recipe.grading import compare_math
print(compare_math("5", "5", timeout_s=60).reason, *{"math_verify", "sympy"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == "equal\n"


def test_an_expression_without_end_is_cut_and_the_next_one_is_answered(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.WARNING):
        verdict = compare_math("\\boxed{9^{9^{9^{9}}}!}", "5", timeout_s=1.0)

    assert (verdict.is_equal, verdict.reason) == (False, "timeout")
    assert "timeout" in caplog.text
    assert math_equal("\\boxed{5}", "5")


async def test_the_limit_holds_in_threads_and_disturbs_no_other_comparison():
    hopeless = "\\boxed{10^{10^{10}}}"
    pairs = [(hopeless, 1.0), ("\\boxed{5}", 60.0), (hopeless, 1.0), ("\\boxed{5.0}", 60.0)]

    verdicts = await asyncio.gather(
        *(asyncio.to_thread(compare_math, text, "5", timeout_s=limit) for text, limit in pairs)
    )

    assert [verdict.reason for verdict in verdicts] == ["timeout", "equal", "timeout", "equal"]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_no_hostile_text_equals_an_answer(text: str):
    assert not math_equal(text, "7", timeout_s=1.0)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=60) | st.text(st.sampled_from("0123456789+-*/^(){}\\, x=$%"), max_size=30))
def test_any_text_gets_a_verdict(text: str):
    assert compare_math(f"\\boxed{{{text}}}", "7", timeout_s=3.0).reason
