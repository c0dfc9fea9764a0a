from hypothesis import given
from hypothesis import strategies as st
from tests.server.rows import waiting

from mint.server.scheduler.order import startable
from mint.server.store.records import PendingOperation


def may_start(pending, running=()) -> list[int]:
    return [operation.arrival for operation in startable(pending, running)]


def test_passes_in_a_row_start_together_and_a_step_waits_for_them():
    queue = [
        waiting(1, "ForwardBackward", "m"),
        waiting(2, "ForwardBackward", "m"),
        waiting(3, "OptimStep", "m"),
        waiting(4, "ForwardBackward", "m"),
    ]

    assert may_start(queue) == [1, 2]
    assert may_start(queue[2:], running=queue[:2]) == []
    assert may_start(queue[2:]) == [3]
    assert may_start(queue[3:], running=queue[2:3]) == []


def test_a_pass_joins_passes_that_run():
    assert may_start(
        [waiting(2, "ForwardBackward", "m")], [waiting(1, "ForwardBackward", "m")]
    ) == [2]


def test_a_reverse_kl_joins_passes_and_holds_a_step_back_as_they_do():
    queue = [
        waiting(1, "ForwardBackward", "m"),
        waiting(2, "ReverseKL", "m"),
        waiting(3, "ForwardBackward", "m"),
        waiting(4, "OptimStep", "m"),
        waiting(5, "ReverseKL", "m"),
    ]

    assert may_start(queue) == [1, 2, 3]
    assert may_start(queue[3:], running=queue[1:2]) == []


def test_models_do_not_wait_for_each_other():
    queue = [waiting(1, "OptimStep", "a"), waiting(2, "OptimStep", "b"), waiting(3, "Sample")]

    assert may_start(queue) == [1, 2, 3]


def test_a_hole_in_the_numbers_holds_nothing_up():
    """seq_id is not even among the values: arrival decides."""
    assert may_start([waiting(5, "OptimStep", "m"), waiting(9, "OptimStep", "m")]) == [5]


def test_training_waits_for_the_creation_of_its_model():
    queue = [waiting(1, "CreateModel", "m"), waiting(2, "ForwardBackward", "m")]

    assert may_start(queue) == [1]
    assert may_start(queue[1:], running=queue[:1]) == []


def test_a_sample_waits_until_its_weights_are_pinned():
    pin, sample = waiting(1, "PinSampler", "m", "s"), waiting(2, "Sample", sampler="s")

    assert may_start([pin, sample]) == [1]
    assert may_start([sample], running=[pin]) == []
    assert may_start([sample, waiting(3, "Sample", sampler="other")]) == [2, 3]


def test_weights_are_released_after_the_samples_before():
    sample, release = waiting(1, "Sample", sampler="s"), waiting(2, "ReleaseSampler", sampler="s")
    late = waiting(3, "Sample", sampler="s")

    assert may_start([sample, release, late]) == [1]
    assert may_start([release, late], running=[sample]) == []
    assert may_start([release, late]) == [2]


KINDS = ["CreateModel", "ForwardBackward", "OptimStep", "SaveWeights", "PinSampler", "UnloadModel"]
queues = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("ab")), max_size=12).map(
    lambda pairs: [waiting(i, kind, model) for i, (kind, model) in enumerate(pairs, 1)]
)


@given(queues, st.integers(0, 12))
def test_whatever_starts_side_by_side_on_a_model_are_passes(
    queue: list[PendingOperation], cut: int
):
    running = startable(queue[:cut], [])
    rest = [operation for operation in queue if operation not in running]
    side_by_side = [*running, *startable(rest, running)]

    for model in "ab":
        kinds = [op.kind for op in side_by_side if op.model_id == model]
        assert len(kinds) <= 1 or set(kinds) == {"ForwardBackward"}


@given(queues)
def test_a_queue_always_moves_and_keeps_the_order_of_each_model(queue: list[PendingOperation]):
    done, left = [], queue
    while left:
        started = startable(left, [])
        assert started
        done += started
        left = [operation for operation in left if operation not in started]

    for model in "ab":
        arrivals = [op.arrival for op in done if op.model_id == model]
        assert arrivals == sorted(arrivals)
