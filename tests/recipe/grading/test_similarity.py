"""Similarity of texts."""

import pytest

from mint.recipe.grading import bleu, edit_similarity
from mint.recipe.grading.similarity import MAX_CHARS


def test_edit_similarity_is_the_share_that_needs_no_edit():
    assert edit_similarity("kitten", "sitting") == pytest.approx(1 - 3 / 7)
    assert edit_similarity("abc", ["xyz", "abc"]) == 1.0
    assert edit_similarity("", "") == 1.0
    assert edit_similarity("abc", "") == 0.0


def test_what_is_beyond_the_limit_counts_as_an_edit():
    assert edit_similarity("a" * 2 * MAX_CHARS, "a" * MAX_CHARS) == pytest.approx(0.5)


def test_bleu_is_1_for_the_reference_and_falls_with_shared_words():
    reference = "the cat sat on the mat"
    near, far = bleu("the cat sat on a mat", reference), bleu("a dog ran", reference)
    assert bleu(reference, ["something else", reference]) == pytest.approx(1.0)
    assert 0.0 < near < 1.0
    assert far == 0.0 < near


def test_bleu_of_a_known_sentence():
    # 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 fours, and no brevity penalty
    expected = (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert bleu("the cat sat on a mat", "the cat sat on the mat") == pytest.approx(expected)


def test_a_text_beyond_the_limit_scores_0_and_a_reference_is_refused():
    assert bleu("cat " * MAX_CHARS, "cat") == 0.0
    for grade in (bleu, edit_similarity):
        with pytest.raises(ValueError, match=f"at most {MAX_CHARS}"):
            grade("cat", "cat " * MAX_CHARS)
