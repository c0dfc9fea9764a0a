from tests.server.rows import ANNE, BOB, a_model, a_session, an_operation, create_of

from mint.core.errors import Fault
from mint.core.operations import Failure
from mint.server.store.records import Effects, ModelState, OperationCount, OperationStatus


def test_the_queue_is_counted_by_owner_model_kind_and_status_the_oldest_first(store, clock):
    model = a_model(a_session(store))
    made = store.enqueue(create_of(model), model=model)
    store.take([made])
    clock.advance(seconds=5)
    second = clock.now
    for _ in range(2):
        store.enqueue(an_operation("OptimStep", model_id=model.model_id))
        clock.advance(seconds=5)
    store.enqueue(an_operation(owner=BOB))
    store.finish(store.enqueue(an_operation()), b"ended")

    seen = [(line.owner, line.kind, line.status, line.count) for line in store.queue()]
    assert seen == [
        (ANNE, "CreateModel", OperationStatus.RUNNING, 1),
        (ANNE, "OptimStep", OperationStatus.PENDING, 2),
        (BOB, "Sample", OperationStatus.PENDING, 1),
    ]
    assert store.queue()[1].oldest_at == second
    assert [line.owner for line in store.queue(BOB)] == [BOB]


def test_operations_are_counted_by_kind_and_status(store):
    for _ in range(2):
        store.finish(store.enqueue(an_operation()), b"r")
    store.finish(store.enqueue(an_operation()), None, Failure("no", Fault.USER))
    store.enqueue(an_operation("ResolveModel"))

    assert store.count_operations() == [
        OperationCount("ResolveModel", OperationStatus.PENDING, 1),
        OperationCount("Sample", OperationStatus.DONE, 2),
        OperationCount("Sample", OperationStatus.FAILED, 1),
    ]


def test_open_sessions_and_live_models_are_those_of_now(store, clock):
    first = a_session(store)
    clock.advance(seconds=1)
    second, of_bob = a_session(store), a_session(store, owner=BOB)
    store.finish_session(ANNE, first.session_id, "success", None)
    ready, gone = a_model(second), a_model(second, seq=1)
    for model, state in ((ready, ModelState.READY), (gone, ModelState.UNLOADED)):
        effects = Effects(model_id=model.model_id, model_state=state)
        request = create_of(model, seq=int(model.model_id[-1]))
        store.finish(store.enqueue(request, model=model), b"r", effects=effects)

    assert [s.session_id for s in store.open_sessions(ANNE)] == [second.session_id]
    assert {s.session_id for s in store.open_sessions()} == {second.session_id, of_bob.session_id}
    assert [m.model_id for m in store.live_models()] == [ready.model_id]
    assert store.live_models(BOB) == []
