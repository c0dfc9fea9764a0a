import pytest
from tests.server.rows import waiting

from mint.core.errors import OverloadedError
from mint.server.scheduler.admission import admit_sample
from mint.server.scheduler.fairness import take_turns
from mint.server.scheduler.plan import Limits, plan


def owners_of(turns) -> list[str]:
    return [operation.owner for operation in turns.order]


def test_owners_take_turns_by_tokens():
    """Anne's requests are three times as long, so Bob gets three to each of hers."""
    queue = [waiting(i, owner="anne", tokens=300) for i in range(1, 5)]
    queue += [waiting(i, owner="bob", tokens=100) for i in range(5, 13)]

    turns = take_turns(queue, [], {}, most=8)

    assert owners_of(turns) == ["anne", "bob", "bob", "bob", "anne", "bob", "bob", "bob"]


def test_a_late_small_owner_overtakes_a_long_queue():
    queue = [waiting(i, owner="anne") for i in range(1, 1000)] + [waiting(1000, owner="bob")]

    assert "bob" in owners_of(take_turns(queue, [], {}, most=2))


def test_who_was_served_comes_after_who_waited():
    first = take_turns([waiting(1, owner="anne", tokens=500)], [waiting(0, owner="bob")], {}, 1)
    queue = [waiting(2, owner="anne"), waiting(3, owner="bob")]

    assert owners_of(take_turns(queue, [], first.served, most=2)) == ["bob", "anne"]


def test_who_comes_back_starts_level_with_the_others():
    """An owner who was away saved nothing up: they share from now on."""
    served = take_turns(
        [waiting(1, owner="anne", tokens=1000)], [waiting(9, owner="anne")], {}, 1
    ).served
    queue = [waiting(i, owner="anne", tokens=10) for i in range(2, 6)]
    queue += [waiting(i, owner="bob", tokens=10) for i in range(6, 10)]

    assert owners_of(take_turns(queue, [], served, most=4)) == ["anne", "bob", "anne", "bob"]


def test_counters_of_those_who_left_are_dropped():
    served = take_turns([waiting(1, owner="anne")], [], {}, 1).served
    later = take_turns([waiting(2, owner="bob")], [], served, 1).served

    assert {owner for owner, _ in later} == {"bob"}


def test_models_of_one_owner_take_turns_too():
    queue = [waiting(1, "Sample", sampler="a"), waiting(2, "Sample", sampler="a")]
    queue += [waiting(3, "Sample", sampler="b")]

    assert [op.arrival for op in take_turns(queue, [], {}, most=2).order] == [1, 3]


def test_no_more_is_inside_the_engine_than_the_limits_say():
    limits = Limits(samples=2, passes_of_a_model=3, others=4)
    queue = [waiting(i, "Sample") for i in range(1, 6)]
    queue += [waiting(i, "ForwardBackward", "m") for i in range(6, 12)]

    assert plan(queue, [], {}, limits).start == ("1", "2", "6", "7", "8")
    assert plan(queue[2:], queue[:2], {}, limits).start == ("6", "7", "8")
    assert plan(queue[9:], queue[6:9], {}, limits).start == ()


def test_sampling_leaves_room_for_training_and_the_other_way_round():
    running = [waiting(i, "Sample") for i in range(1, 65)]

    chosen = plan([waiting(99, "Sample"), waiting(100, "OptimStep", "m")], running, {}, Limits())
    assert chosen.start == ("100",)


def test_the_same_queue_gets_the_same_plan():
    queue = [waiting(i, owner="anne" if i % 3 else "bob", tokens=i) for i in range(1, 40)]

    assert plan(queue, [], {}, Limits(samples=7)) == plan(queue, [], {}, Limits(samples=7))


def test_too_many_waiting_samples_of_one_owner_are_refused_with_the_numbers():
    admit_sample(pending_samples=4, most=5)
    with pytest.raises(OverloadedError, match=r"5 of your .* at most 5"):
        admit_sample(pending_samples=5, most=5)
