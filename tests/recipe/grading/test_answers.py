"""Where a response states its answer."""

import subprocess
import sys

import pytest

from mint.recipe.grading import (
    answer_text,
    extract_boxed,
    extract_tag,
    follows_tags,
    without_reasoning,
)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\\boxed{5}", "5"), ("\\boxed{ \\frac{1}{2} }", "\\frac{1}{2}"), ("\\fbox{5}", "5"),
        ("\\boxed{1} and \\boxed{2}", "2"), ("\\boxed{\\boxed{5}}", "5"), ("\\boxed{}", ""),
        ("\\boxed {5}", "5"), ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"), ("} \\boxed{5}", "5"),
        ("{ \\boxed{5}", "5"), ("\\boxed{1} \\boxed{2", "1"), ("a \\\\ \\boxed{5}", "5"),
        ("\\boxed{" + "{" * 10_000 + "}" * 10_001, "{" * 10_000 + "}" * 10_000),
        ("\\boxed{5", None), ("\\boxed 5", None), ("boxed{5}", None), ("\\\\boxed{5}", None), ("", None),
    ],
    ids=range(18),
)  # fmt: skip
def test_a_box_may_hold_braces_and_the_last_closed_one_counts(text: str, content: str | None):
    assert extract_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<answer> 5 </answer>", "5"), ("<ANSWER>5</Answer>", "5"), ("<answer></answer>", ""),
        ("<answer>1</answer> <answer>2</answer>", "2"), ("<answer>1</answer> <answer>2", "1"),
        ("<answer>1<answer>2</answer>", "2"), ("</answer>1<answer>", None), ("<answer>1", None),
        ("<answers>1</answers>", None), ("", None),
    ],
)  # fmt: skip
def test_the_last_complete_tag_counts(text: str, content: str | None):
    assert extract_tag(text) == content


def test_a_tag_may_have_any_name_but_has_to_be_one():
    assert extract_tag("<sql>select 1</sql>", "sql") == "select 1"
    with pytest.raises(ValueError, match="'<sql>' is not the name of a tag"):
        extract_tag("", "<sql>")


def test_a_tag_goes_before_a_box():
    assert answer_text("<answer>1</answer> \\boxed{2}") == "1"
    assert answer_text("\\boxed{2} <answer>1") == "2"
    assert answer_text("2") is None


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ("<think>a</think><answer>b</answer>", True), ("\n<think>a\n</think>\n\n<answer></answer> ", True),
        ("<answer>b</answer><think>a</think>", False), ("<think>a</think>so<answer>b</answer>", False),
        ("<think>a</think><answer>b</answer>!", False), ("<think>a<answer>b</answer></think>", False),
        ("<think></think><think></think><answer></answer>", False), ("<answer>b</answer>", False),
        ("<think>a</think><answer>b", False), ("", False),
    ],
)  # fmt: skip
def test_a_response_follows_tags_if_it_is_these_blocks_and_no_more(text: str, follows: bool):
    assert follows_tags(text) is follows


def test_without_tags_nothing_can_be_followed():
    assert follows_tags(" <plan></plan> ", ("plan",))
    with pytest.raises(ValueError, match="at least one tag"):
        follows_tags("", ())


def test_reasoning_is_left_out_and_unfinished_reasoning_is_no_answer():
    assert without_reasoning("<think>12?</think>\n\n42") == "42"
    assert without_reasoning("12?</think>42") == "42"
    assert without_reasoning("<think>12?") == ""
    assert without_reasoning("42") == "42"


def test_reading_an_answer_loads_no_package_of_any_size():
    script = """
import sys
from mint.recipe.grading import without_reasoning
without_reasoning("<think>12?</think>42")
print(*{"tinker", "torch", "transformers", "numpy", "pydantic"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == "\n"
