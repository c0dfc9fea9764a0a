"""Who has the next turn, on values alone."""

import itertools
import random
from collections import Counter

import pytest

from mint.engine.turns import DECODE_ROWS, Source, Turns, allowance, round_cost

SAMPLING, TRAINING = Source("sampling", 0.5), Source("training", 0.5)


def played(turns, waiting, cost, count):
    """The names of the next `count` turns, and the state after them. `waiting` and `cost` are asked
    before each."""
    names = []
    for n in range(count):
        source = turns.next(waiting(n))
        turns = turns.charged(source, cost(source))
        names.append(source.name)
    return names, turns


def longest_run(names, of):
    return max((len(list(g)) for name, g in itertools.groupby(names) if name == of), default=0)


def test_two_that_wait_with_equal_turns_alternate():
    names, _ = played(Turns(), lambda _: (SAMPLING, TRAINING), lambda _: 48, 6)
    assert names == ["sampling", "training"] * 3


@pytest.mark.parametrize("rows", [1, 16, 48, 200])
@pytest.mark.parametrize("layer_tokens", [1, 15])
def test_at_most_two_turns_of_one_lie_between_two_of_the_other(rows, layer_tokens):
    """A training turn ends at the first border of a layer after its allowance."""
    rng = random.Random(rows)
    tokens = round_cost(rows)

    def cost(source):
        if source is SAMPLING:
            return tokens
        return allowance(TRAINING, SAMPLING, tokens) + rng.uniform(0, layer_tokens)

    names, _ = played(Turns(), lambda _: (SAMPLING, TRAINING), cost, 2000)

    assert longest_run(names, "training") <= 2
    assert longest_run(names, "sampling") <= 2


def test_what_is_computed_is_in_proportion_to_the_weights():
    quick, slow = Source("sampling", 0.25), Source("training", 0.75)
    rng = random.Random(0)
    spent = {"sampling": 0.0, "training": 0.0}
    turns = Turns()
    for _ in range(3000):
        source = turns.next((quick, slow))
        cost = rng.uniform(1, 100)
        spent[str(source.name)] += cost
        turns = turns.charged(source, cost)
        gap = abs(spent["sampling"] / 0.25 - spent["training"] / 0.75)
        assert gap <= 100 / 0.25 + 100 / 0.75


def test_a_source_that_was_idle_saves_up_no_credit():
    _, turns = played(Turns(), lambda _: (TRAINING,), lambda _: 48, 100)
    names, _ = played(turns, lambda _: (SAMPLING, TRAINING), lambda _: 48, 10)
    assert longest_run(names, "sampling") <= 2


def test_leaving_for_a_moment_does_not_wipe_out_a_long_turn():
    turns = Turns().charged(TRAINING, 480)
    turns = turns.charged(turns.next((SAMPLING,)), 48)  # training has nothing to do, just now
    names, _ = played(turns, lambda _: (TRAINING, SAMPLING), lambda _: 48, 9)
    assert names == ["sampling"] * 9


def test_a_hundred_sources_all_get_their_turn():
    sources = tuple(Source(n) for n in range(100))
    names, _ = played(Turns(), lambda _: sources, lambda _: 10, 200)
    assert Counter(names) == Counter(dict.fromkeys(range(100), 2))


def test_state_does_not_grow_with_sources_that_have_gone():
    turns = Turns()
    for n in range(1000):
        for _ in range(2):
            turns = turns.charged(turns.next((Source(n),)), 10)
    assert len(turns.tags) <= 2


def test_a_round_of_few_rows_costs_as_much_as_one_of_sixteen():
    assert round_cost(1) == round_cost(DECODE_ROWS) == DECODE_ROWS
    assert round_cost(48) == 48
    assert round_cost(0, prefilled=100) == 100


def test_more_share_makes_training_turns_longer():
    assert allowance(Source("t", 0.8), Source("s", 0.2), 48) == pytest.approx(4 * 48)
