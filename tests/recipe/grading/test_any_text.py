"""No text makes a grader raise, hang or leave its range."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.grading.hostile import TEXTS, UNITS, growth

from mint.recipe import grading

EXTRACTORS = (
    grading.answer_text, grading.extract_tag, grading.extract_boxed, grading.without_reasoning,
    grading.extract_number, grading.read_number, grading.extract_choice, grading.extract_json,
)  # fmt: skip

VERIFIERS = {
    "follows_tags": grading.follows_tags,
    "number": lambda text: grading.number_matches(text, "1/3", relative=0.1, absolute=1e-3),
    "percent": lambda text: grading.number_matches(text, 50, percent="number"),
    "choice": lambda text: grading.choice_matches(text, "B"),
    "exact": lambda text: grading.exact_match(text, "a"),
    "normalised": lambda text: grading.normalised_match(text, ["cat", "the dog"]),
    "pattern": lambda text: grading.pattern_matches(text, r"(?i)the (\d+)"),
}

SCORES = {
    "token_f1": lambda text: grading.token_f1(text, "the cat sat on the mat"),
    "edit_similarity": lambda text: grading.edit_similarity(text, ["the cat", ""]),
    "bleu": lambda text: grading.bleu(text, "the cat sat on the mat"),
    "repetition": lambda text: 1 + grading.repetition_penalty(text, n=2),
}

ALPHABET = "0123456789-+.,/^_{}()[]\\$%eE x=ABab:\"'*<>|\n½²−١٣\u2009"
"""What numerals, choices, tags and JSON are made of."""

PIECES = st.sampled_from(
    ("\\boxed{", "\\frac{", "<answer>", "</answer>", "</think>", "}", "{", "1e9", "answer is ", "(B)",
     "B", "-", "3/4", "1,234", "50%", "```json\n", '"a":', "\\text{", "**", " ", "\n", "×10^", "0")
)  # fmt: skip

texts = st.one_of(
    st.text(max_size=200),
    st.text(st.sampled_from(ALPHABET), max_size=60),
    st.lists(PIECES, max_size=12).map("".join),
)


@given(texts)
def test_extraction_and_verifiers_take_any_text(text: str):
    for extract in EXTRACTORS:
        extract(text)
    for name, verify in VERIFIERS.items():
        assert verify(text) in (True, False), name


@given(texts)
def test_a_score_lies_between_0_and_1(text: str):
    for name, score in SCORES.items():
        assert 0.0 <= score(text) <= 1.0, name


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_what_is_too_large_too_deep_or_meaningless_is_only_wrong(text: str):
    for extract in EXTRACTORS:
        extract(text)
    for verify in VERIFIERS.values():
        assert not verify(text)
    for score in SCORES.values():
        assert 0.0 <= score(text) <= 1.0


@pytest.mark.parametrize("unit", UNITS)
def test_a_text_16_times_as_long_takes_about_16_times_the_time(unit: str):
    functions = (
        *EXTRACTORS,
        grading.follows_tags,
        grading.normalise_text,
        grading.repetition_penalty,
    )
    for function in functions:
        assert growth(function, unit) < 100, function.__name__


@pytest.mark.parametrize("unit", UNITS)
def test_the_inside_of_a_box_is_read_as_fast(unit: str):
    for function in (grading.extract_number, grading.extract_choice):
        assert growth(lambda text, read=function: read(f"\\boxed{{{text}5}}"), unit) < 100
