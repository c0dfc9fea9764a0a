"""Sampled sequences are known again by their bits, and compared with the trainer."""

import logging

import numpy as np
import pytest

from mint.core.ids import ModelId
from mint.torch_engine.provenance import Origin, Provenance

AT_3 = Origin.of(ModelId("m"), 3, 1.0)


def drawn(rng, count):
    """Tokens and logprobs of a sequence; every third token is certain."""
    logprobs = -rng.exponential(1, count).astype(np.float32)
    logprobs[::3] = 0.0
    return rng.integers(0, 50, count).astype(np.int32), logprobs


def in_datum(*parts):
    """Targets and logprobs of a datum: pairs of arrays, or a number of prompt positions."""
    rng = np.random.default_rng(9)
    targets, logprobs = [], []
    for part in parts:
        tokens, logp = (
            (rng.integers(0, 50, part), np.zeros(part, np.float32))
            if isinstance(part, int)
            else part
        )
        targets.append(np.asarray(tokens, dtype=np.int64))
        logprobs.append(logp)
    return np.concatenate(targets), np.concatenate(logprobs)


def test_gaps_are_taken_over_sampled_tokens_and_nothing_else():
    rng = np.random.default_rng(0)
    first, second = drawn(rng, 9), drawn(rng, 7)
    known = Provenance()
    for sequence in (first, second):
        known.note(AT_3, *sequence)
    targets, sampled = in_datum(5, first, 4, second, 2)  # two turns of a dialogue in one datum
    ours = sampled.copy()
    ours[5:14] += 0.25
    ours[18:25] -= 0.5
    ours[:5] = -7  # of the prompt: whatever it is, nothing was sampled there

    parity = known.compare(AT_3, targets, sampled, ours)

    assert parity is not None
    assert parity.tokens == 16
    assert parity.largest == pytest.approx(0.5)
    assert parity.mean == pytest.approx((9 * 0.25 + 7 * 0.5) / 16)


@pytest.mark.parametrize(
    "other",
    [
        Origin.of(ModelId("m"), 4, 1.0),
        Origin.of(ModelId("n"), 3, 1.0),
        Origin.of(ModelId("m"), 3, 0.7),
    ],
)
def test_of_another_version_model_or_temperature_nothing_is_compared(other):
    sequence = drawn(np.random.default_rng(0), 9)
    known = Provenance()
    known.note(AT_3, *sequence)
    targets, sampled = in_datum(5, sequence)
    assert known.compare(other, targets, sampled, sampled) is None


def test_a_changed_logprob_is_not_taken_for_the_sampled_one():
    tokens, logprobs = drawn(np.random.default_rng(0), 9)
    known = Provenance()
    known.note(AT_3, tokens, logprobs)
    for at in range(9):
        changed = logprobs.copy()
        changed[at] = np.nextafter(changed[at], np.float32(-1))
        targets, sampled = in_datum(3, (tokens, changed), 2)
        assert known.compare(AT_3, targets, sampled, sampled) is None


def test_sequences_that_begin_alike_are_told_apart():
    rng = np.random.default_rng(0)
    tokens, logprobs = drawn(rng, 12)
    known = Provenance()
    ends = [drawn(rng, 5) for _ in range(8)]
    whole = [(np.concatenate([tokens, t]), np.concatenate([logprobs, p])) for t, p in ends]
    for sequence in whole[:5]:
        known.note(AT_3, *sequence)
    targets, sampled = in_datum(*(part for sequence in whole for part in (2, sequence)))
    parity = known.compare(AT_3, targets, sampled, sampled)
    assert parity is not None
    assert (parity.tokens, parity.largest) == (5 * 17, 0.0)


def test_a_temperature_is_the_same_before_and_after_float32():
    assert Origin.of(ModelId("m"), 1, 0.7) == Origin.of(ModelId("m"), 1, float(np.float32(0.7)))


def test_a_record_is_bounded_and_forgets_the_oldest():
    rng = np.random.default_rng(0)
    known = Provenance(tokens_kept=30)
    sequences = [drawn(rng, 10) for _ in range(10)]
    for sequence in sequences:
        known.note(AT_3, *sequence)
    found = [known.compare(AT_3, *in_datum(sequence), sequence[1]) for sequence in sequences]
    assert [parity is not None for parity in found] == [False] * 7 + [True] * 3


def test_what_is_drawn_again_and_again_is_kept_once():
    """Greedily drawn, or short: each would else be compared with each."""
    rng = np.random.default_rng(0)
    known = Provenance(tokens_kept=30)
    other, same = drawn(rng, 10), drawn(rng, 10)
    known.note(AT_3, *other)
    for _ in range(50):
        known.note(AT_3, *same)
    for sequence in (other, same):
        parity = known.compare(
            AT_3, *in_datum(3, sequence, sequence), in_datum(3, sequence, sequence)[1]
        )
        assert parity is not None
        assert parity.tokens == 20


def test_what_earlier_versions_drew_is_forgotten():
    rng = np.random.default_rng(0)
    known = Provenance()
    old, new = drawn(rng, 10), drawn(rng, 10)
    at_4 = Origin.of(ModelId("m"), 4, 1.0)
    known.note(AT_3, *old)
    known.note(at_4, *new)
    known.forget_before(ModelId("m"), 4)
    assert known.compare(AT_3, *in_datum(old), old[1]) is None
    assert known.compare(at_4, *in_datum(new), new[1]) is not None


def test_a_gap_above_the_threshold_is_told_once(caplog):
    sequence = drawn(np.random.default_rng(0), 9)
    known = Provenance()
    known.note(AT_3, *sequence)
    targets, sampled = in_datum(sequence)
    with caplog.at_level(logging.WARNING):
        close = known.of_pass(AT_3, targets, sampled, sampled + np.float32(1e-4), 1e-3)
        assert not caplog.records
        far = known.of_pass(AT_3, targets, sampled, sampled + np.float32(0.1), 1e-3)
    assert close["parity/logprob_gap:max"] == pytest.approx(1e-4, rel=0.01)
    assert far["parity/tokens:sum"] == 9
    (record,) = caplog.records
    assert "model m, version 3" in record.getMessage()
    assert "0.1 nats" in record.getMessage()


def test_a_gap_that_is_not_a_number_is_told_too(caplog):
    sequence = drawn(np.random.default_rng(0), 9)
    known = Provenance()
    known.note(AT_3, *sequence)
    targets, sampled = in_datum(sequence)
    with caplog.at_level(logging.WARNING):
        known.of_pass(AT_3, targets, sampled, sampled * np.float32(np.nan), 1e-3)
    assert len(caplog.records) == 1
