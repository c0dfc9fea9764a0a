import threading
from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError
from tests.server.rows import (
    ANNE,
    BOB,
    a_checkpoint,
    a_model,
    a_sampler,
    a_session,
    an_operation,
    create_of,
)

from mint.core.errors import Fault, NotFoundError
from mint.core.ids import OperationId
from mint.core.lora import LoraSpec
from mint.core.operations import Failure
from mint.server.store.records import Effects, ModelState, OperationStatus


def test_a_repeated_request_gets_the_first_operation_back(store):
    first = store.enqueue(an_operation(seq_id=1, payload=b"one"))
    again = store.enqueue(an_operation(seq_id=1, payload=b"another body"))
    other = store.enqueue(an_operation(seq_id=2))

    assert again == first != other
    assert [payload for _, _, payload in store.take([first])] == [b"one"]


def test_a_repeated_request_makes_no_second_sampler(store):
    session = a_session(store)
    request = an_operation("PinSampler", seq_id=7)
    store.enqueue(request, sampler=a_sampler(session, "first"))
    store.enqueue(request, sampler=a_sampler(session, "second"))

    _, samplers = store.session_objects(session.session_id)
    assert [sampler.sampler_id for sampler in samplers] == ["first"]


def test_requests_without_a_number_are_never_taken_for_retries(store):
    assert store.enqueue(an_operation()) != store.enqueue(an_operation())


def test_nobody_uses_up_the_numbers_of_somebody_else(store):
    of_anne = store.enqueue(an_operation(seq_id=1))
    of_bob = store.enqueue(an_operation(seq_id=1, owner=BOB))

    assert of_anne != of_bob


def test_racing_retries_make_one_row(store):
    ids: list[OperationId] = []
    start = threading.Barrier(8)

    def send() -> None:
        start.wait()
        ids.append(store.enqueue(an_operation(seq_id=1)))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(ids) == 8
    assert len(set(ids)) == 1
    assert len(store.pending()) == 1


def test_another_owners_operation_does_not_exist(store):
    operation_id = store.enqueue(an_operation())

    for call in (store.operation, store.cancel):
        with pytest.raises(NotFoundError):
            call(BOB, operation_id)
    assert store.operation(ANNE, operation_id).status is OperationStatus.PENDING


@pytest.mark.parametrize("name", ["", "x", "1; drop", "-1", "99", "9" * 40, "१"])
def test_what_is_no_operations_id_is_not_found(store, name):
    with pytest.raises(NotFoundError):
        store.operation(ANNE, OperationId(name))


def test_an_operation_on_another_owners_model_is_not_queued(store):
    model = a_model(a_session(store))
    store.enqueue(create_of(model), model=model)

    with pytest.raises(NotFoundError):
        store.enqueue(an_operation("OptimStep", owner=BOB, model_id=model.model_id))
    assert len(store.pending()) == 1


def test_a_failure_known_at_once_is_stored_with_its_model(store):
    model = a_model(a_session(store))
    failure = Failure("no such base model", Fault.USER)
    operation_id = store.enqueue(create_of(model), model=model, failure=failure)

    record = store.operation(ANNE, operation_id)
    assert (record.status, record.error, record.fault) == (
        OperationStatus.FAILED, "no such base model", Fault.USER,
    )  # fmt: skip
    assert store.model(ANNE, model.model_id).state is ModelState.FAILED
    assert store.pending() == []


def test_operations_wait_in_order_of_arrival(store, clock):
    ids = [store.enqueue(an_operation()) for _ in range(3)]

    assert [operation.operation_id for operation in store.pending()] == ids
    assert [store.place(operation_id, clock.now).before for operation_id in ids] == [0, 1, 2]
    assert [op.operation_id for op in store.pending(after=store.pending()[0].arrival)] == ids[1:]


def test_a_taken_operation_is_taken_once(store):
    ids = [store.enqueue(an_operation()) for _ in range(2)]

    assert [taken[0] for taken in store.take(ids)] == ids
    assert store.take(ids) == []
    assert [operation.operation_id for operation in store.running()] == ids


def test_a_requeued_operation_keeps_its_place_and_its_payload(store):
    ids = [store.enqueue(an_operation(payload=b"p")) for _ in range(2)]
    store.take(ids[:1])
    store.requeue(ids[:1])

    assert [operation.operation_id for operation in store.pending()] == ids
    assert store.take(ids[:1])[0][2] == b"p"


def test_the_end_of_a_creation_changes_its_model_with_it(store):
    model = a_model(a_session(store), base="")
    operation_id = store.enqueue(create_of(model), model=model)
    store.take([operation_id])
    store.finish(
        operation_id,
        b"result",
        effects=Effects(
            model_id=model.model_id,
            model_state=ModelState.READY,
            model_base="found",
            model_lora=LoraSpec(rank=2),
        ),
    )

    assert store.operation(ANNE, operation_id).result == b"result"
    made = store.model(ANNE, model.model_id)
    assert (made.state, made.base_model, made.lora.rank) == (ModelState.READY, "found", 2)


def test_effects_that_cannot_be_written_leave_the_operation_open(store):
    model = a_model(a_session(store))
    operation_id = store.enqueue(create_of(model), model=model)
    impossible = a_checkpoint(model, "a", folder=None)

    with pytest.raises(IntegrityError):
        store.finish(
            operation_id,
            b"result",
            effects=Effects(
                model_id=model.model_id, model_state=ModelState.READY, checkpoint=impossible
            ),
        )

    assert store.operation(ANNE, operation_id).status is OperationStatus.PENDING
    assert store.model(ANNE, model.model_id).state is ModelState.CREATING


def test_an_operation_that_has_ended_stays_as_it_is(store):
    operation_id = store.enqueue(an_operation())
    store.cancel(ANNE, operation_id)
    store.finish(operation_id, b"late")

    record = store.operation(ANNE, operation_id)
    assert (record.status, record.fault, record.result) == (
        OperationStatus.FAILED, Fault.CANCELLED, None,
    )  # fmt: skip


def test_cancelling_what_runs_only_tells_that_it_runs(store):
    operation_id = store.enqueue(an_operation())
    store.take([operation_id])

    assert store.cancel(ANNE, operation_id) is OperationStatus.RUNNING


def test_a_cancelled_creation_leaves_a_failed_model(store):
    model = a_model(a_session(store))
    operation_id = store.enqueue(create_of(model), model=model)
    store.cancel(ANNE, operation_id)

    assert store.model(ANNE, model.model_id).state is ModelState.FAILED


def test_payloads_go_with_the_end(store, tmp_path):
    operation_id = store.enqueue(an_operation(payload=b"p" * 1000))
    store.finish(operation_id, b"r")

    with store.reading() as tx:
        kept = tx.exec_driver_sql("SELECT payload, result FROM operations").one()
    assert tuple(kept) == (None, b"r")


def test_results_are_forgotten_after_their_time_and_open_work_never(store, clock):
    old, young, open_ = (store.enqueue(an_operation()) for _ in range(3))
    store.finish(old, b"r")
    clock.advance(hours=2)
    store.finish(young, b"r")

    assert store.forget_old(clock.now) == 1
    with pytest.raises(NotFoundError):
        store.operation(ANNE, old)
    assert store.operation(ANNE, young).result == b"r"
    assert [operation.operation_id for operation in store.pending()] == [open_]


def test_ids_are_never_given_twice(store, clock):
    first = store.enqueue(an_operation())
    store.finish(first, b"r")
    clock.advance(hours=2)
    store.forget_old(clock.now)

    assert store.enqueue(an_operation()) != first


def test_a_place_in_the_queue_says_how_far_and_how_fast(store, clock):
    ids = [store.enqueue(an_operation()) for _ in range(4)]
    store.finish(ids[0], b"r")
    clock.advance(minutes=5)
    store.finish(ids[1], b"r")

    place = store.place(ids[3], clock.now - timedelta(minutes=1))
    assert (place.before, place.waiting, place.ended_lately) == (1, 2, 1)
