"""Multiple choice: the letter that was chosen, or none."""

import pytest

from mint.recipe.grading import choice_matches, extract_choice


@pytest.mark.parametrize(
    "text",
    [
        "B", "b", "(b)", "[B]", "B.", "b)", "**B**", "**(B)**", "B. Paris", "B) Paris", "(B) Paris",
        "\\boxed{B}", "\\boxed{\\text{B}}", "\\boxed{\\textbf{(B)}}", "\\boxed{\\text{B) Paris}}",
        "<answer>B</answer>", "<answer> (b) </answer>", "<answer>The answer is B</answer>",
        "The answer is B.", "The answer is (b).", "The answer is **B**", "Answer: B", "**Answer:** B",
        "ANSWER: (B)", "The correct option is B.", "correct choice: B", "I choose B", "It must be B.",
        "Therefore B", "The answer is B because A is wrong.", "Option A is wrong. The answer is B.",
        "The answer is A. Wait, no: the answer is B.", "Of (B) I am sure.", "the answer is option B",
        "Hence, since (A) fails, \\boxed{B}",
    ],
)  # fmt: skip
def test_the_letter_that_is_chosen_is_found(text: str):
    assert extract_choice(text) == "B"
    assert choice_matches(text, "B")
    assert not choice_matches(text, "C")


@pytest.mark.parametrize(
    "text",
    [
        "", "A good idea is to wait.", "The answer is a number.", "The answer is A good idea.",
        "It is either (A) or (B).", "The answer is B or C", "The answer is B, C", "The answer is not B.",
        "A. Paris B. London", "A. Paris\nB. London", "vitamin C. is good", "<answer>AB</answer>",
        "\\boxed{A, B}", "\\boxed{F}", "(A)(B)", "the answer is C++", "The answer is B's",
        "Because", "\\boxed{} The answer is B.", "I am sure. A",
    ],
)  # fmt: skip
def test_no_letter_or_more_than_one_is_no_answer(text: str):
    assert extract_choice(text) is None


def test_a_is_chosen_where_it_is_no_article():
    for text in ("A", "(a)", "The answer is A.", "The answer is A because it rains."):
        assert extract_choice(text) == "A"


def test_only_the_options_there_are_count():
    assert extract_choice("(E)", "ABCD") is None
    assert extract_choice("The answer is H", "ABCDEFGHIJ") == "H"


@pytest.mark.parametrize("letters", ["", "abc", "AAB", "A1"])
def test_letters_that_are_no_options_are_refused(letters: str):
    with pytest.raises(ValueError, match="capitals of the options"):
        extract_choice("A", letters)


def test_an_expected_letter_has_to_be_an_option():
    assert choice_matches("(b)", "b")
    with pytest.raises(ValueError, match="'E' is none of the letters 'ABCD'"):
        choice_matches("(b)", "E", "ABCD")
