"""Text answers, whole and word by word."""

import pytest

from mint.recipe.grading import exact_match, normalise_text, normalised_match, token_f1


def test_normalised_text_lacks_case_punctuation_articles_and_extra_space():
    assert normalise_text("The  Cat’s \n(big) hat!") == "cats big hat"
    assert normalise_text("ＡＢＣ。ﬁn「x」") == "abcfinx"
    assert normalise_text("An A-team") == "ateam"


def test_an_answer_matches_exactly_or_normalised():
    assert exact_match(" Paris\n", "Paris")
    assert not exact_match("paris", "Paris")
    assert normalised_match("the PARIS.", ["London", "Paris"])
    assert not normalised_match("Paris, France", "Paris")


def test_token_f1_counts_shared_words():
    assert token_f1("the cat sat", "a cat sat down") == pytest.approx(2 * 2 / (2 + 3))
    assert token_f1("cat cat", "cat") == pytest.approx(2 / 3)
    assert token_f1("dog", ["cat", "dog"]) == 1.0
    assert token_f1("", "the") == 1.0
    assert token_f1("cat", "") == 0.0


def test_no_answer_to_compare_with_is_refused():
    for grade in (exact_match, token_f1):
        with pytest.raises(ValueError, match="one right answer or more"):
            grade("cat", [])
