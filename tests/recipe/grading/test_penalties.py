"""Penalties, and the sum they are part of."""

import math

import pytest

from mint.recipe.grading import (
    Graded,
    format_penalty,
    length_penalty,
    repetition_penalty,
    soft_overlong_penalty,
    weighted_sum,
)
from mint.rl_core import Reward


@pytest.mark.parametrize(
    ("length", "penalty"), [(0, 0), (100, 0), (125, -0.25), (200, -1), (999, -1)]
)
def test_a_length_beyond_the_free_one_costs_more_and_more(length: int, penalty: float):
    assert length_penalty(length, free=100, full=200) == pytest.approx(penalty)


@pytest.mark.parametrize(
    ("length", "penalty"), [(16384, 0), (18432, -0.5), (20480, -1), (20481, -1), (12, 0)]
)
def test_the_soft_overlong_penalty_is_the_papers(length: int, penalty: float):
    # its run: at most 20480 tokens, of which the last 4096 are the slope
    assert soft_overlong_penalty(length, max_length=20480, cache=4096) == pytest.approx(penalty)


def test_repetition_is_the_share_of_n_grams_that_were_there_before():
    assert repetition_penalty("a b c d e", n=2) == 0.0
    assert repetition_penalty("a b a b a", n=2) == pytest.approx(2 / 4 - 1)
    assert repetition_penalty([7] * 101, n=1) == pytest.approx(1 / 101 - 1)
    assert repetition_penalty("a b", n=4) == 0.0


def test_a_wrong_form_costs_1():
    assert (format_penalty(True), format_penalty(False)) == (0.0, -1.0)


def test_limits_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="free=5 and full=5"):
        length_penalty(1, free=5, full=5)
    with pytest.raises(ValueError, match="cache=30"):
        soft_overlong_penalty(1, max_length=20, cache=30)
    with pytest.raises(ValueError, match="n=0"):
        repetition_penalty("a", n=0)


def test_a_weighted_sum_keeps_each_component():
    graded = weighted_sum({"correct": True, "long": -0.5}, {"correct": 0.9, "long": 0.2})
    assert graded.score == pytest.approx(0.9 - 0.1)
    assert dict(graded.metadata) == {"correct": 1.0, "long": -0.5}


def test_what_a_component_is_made_of_stays_visible():
    style = weighted_sum({"short": 1, "tidy": 0}, {"short": 0.5, "tidy": 0.5})
    graded = weighted_sum({"correct": 1, "style": style}, {"correct": 1, "style": 0.1})
    assert graded.score == pytest.approx(1.05)
    assert dict(graded.metadata) == {"correct": 1, "style": 0.5, "style/short": 1, "style/tidy": 0}


def test_a_graded_score_unpacks_into_a_reward():
    assert Reward(*Graded(0.5, {"a": 1})) == Reward(0.5, {"a": 1})
    assert float(Graded(0.5)) == 0.5


def test_a_graded_score_does_not_change_with_the_dict_it_was_made_of():
    given = {"a": 1}
    graded = Graded(0.5, given)
    given["a"] = 2
    assert graded == Graded(0.5, {"a": 1})
    with pytest.raises(TypeError):
        graded.metadata["a"] = 3  # type: ignore[index]


def test_components_and_weights_have_to_fit():
    with pytest.raises(ValueError, match=r"components \['a'\] and weights \['b'\]"):
        weighted_sum({"a": 1}, {"b": 1})
    with pytest.raises(ValueError, match="a is nan"):
        weighted_sum({"a": math.nan}, {"a": 1})
    with pytest.raises(ValueError, match="a's weight is inf"):
        weighted_sum({"a": 1}, {"a": math.inf})
