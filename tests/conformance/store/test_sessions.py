import pytest
from sqlalchemy.exc import IntegrityError
from tests.server.rows import ANNE, BOB, a_model, a_sampler, a_session, create_of

from mint.core.errors import NotFoundError
from mint.core.ids import SessionId
from mint.core.models import ServedModel
from mint.server.store.records import Effects, ModelState


def test_a_retried_call_gets_the_first_session_back(store):
    assert a_session(store, key="k") == a_session(store, key="k")
    assert a_session(store, key="k") != a_session(store, key="k", owner=BOB)
    assert a_session(store) != a_session(store)


def test_another_owners_session_does_not_exist(store):
    session = a_session(store)

    for call in (store.session, lambda *who: store.finish_session(*who, "done", None)):
        with pytest.raises(NotFoundError):
            call(BOB, session.session_id)
    assert not store.touch_session(BOB, session.session_id)
    assert store.list_sessions(BOB) == []


def test_the_first_reason_of_an_end_stays(store, clock):
    session = a_session(store)
    assert store.finish_session(ANNE, session.session_id, "success", None)
    ended = store.session(ANNE, session.session_id).finished_at
    clock.advance(seconds=5)

    assert not store.finish_session(ANNE, session.session_id, "expired", "silent")
    assert store.session(ANNE, session.session_id).finished_at == ended
    assert not store.touch_session(ANNE, session.session_id)


def test_silent_sessions_are_those_open_and_not_heard_of(store, clock):
    silent, lively, ended = (a_session(store) for _ in range(3))
    store.finish_session(ANNE, ended.session_id, "success", None)
    clock.advance(minutes=10)
    store.touch_session(ANNE, lively.session_id)

    assert [found.session_id for found in store.silent_sessions(clock.now)] == [silent.session_id]


def test_a_session_knows_what_was_made_in_it(store):
    session, other = a_session(store), a_session(store)
    for one in (session, other):
        model = a_model(one)
        store.enqueue(create_of(model), model=model)
        store.create_sampler(a_sampler(one, f"{one.session_id}:sample:0"))

    models, samplers = store.session_objects(session.session_id)
    assert [model.session_id for model in models] == [session.session_id]
    assert [sampler.session_id for sampler in samplers] == [session.session_id]


def test_a_repeated_sampler_gets_the_first_back_and_no_other_owners(store):
    mine, theirs = a_session(store), a_session(store, owner=BOB)
    first = store.create_sampler(a_sampler(mine, "s", weights=None))

    assert store.create_sampler(a_sampler(mine, "s", weights="tinker://m/weights/a")) == first
    with pytest.raises(NotFoundError):
        store.create_sampler(a_sampler(theirs, "s"))
    with pytest.raises(NotFoundError):
        store.sampler(BOB, first.sampler_id)


def test_a_sampler_of_an_unknown_session_is_refused(store):
    session = a_session(store)
    stray = a_sampler(session, "s")
    object.__setattr__(stray, "session_id", SessionId("nowhere"))

    with pytest.raises(IntegrityError):
        store.create_sampler(stray)


def test_models_that_died_with_an_engine_are_lost(store):
    model = a_model(a_session(store))
    operation_id = store.enqueue(create_of(model), model=model)
    assert store.models_in_memory() == []
    store.finish(operation_id, b"r", effects=_ready(model.model_id))

    assert [found.model_id for found in store.models_in_memory()] == [model.model_id]
    store.lose_models([model.model_id])
    assert store.model(ANNE, model.model_id).state is ModelState.LOST
    with pytest.raises(NotFoundError):
        store.model(BOB, model.model_id)


def test_pinned_weights_are_told_from_saved_ones(store):
    session = a_session(store)
    pinned = a_sampler(session, "p", weights="p")
    object.__setattr__(pinned, "model_id", "m")
    for sampler in (pinned, a_sampler(session, "s", weights="tinker://m/weights/a")):
        store.create_sampler(sampler)

    assert store.pinned_among(["p", "s", "unknown"]) == {"p": "m"}


def test_the_list_of_served_models_keeps_its_order(store):
    store.set_served([_served("b"), _served("a")])
    store.add_served(_served("c"))
    store.add_served(_served("b", vocab_size=9))

    assert [(model.name, model.vocab_size) for model in store.served()] == [
        ("a", 8), ("c", 8), ("b", 9),
    ]  # fmt: skip
    store.set_served([])
    assert store.served() == []


def _ready(model_id):
    return Effects(model_id=model_id, model_state=ModelState.READY)


def _served(name: str, vocab_size: int = 8) -> ServedModel:
    return ServedModel(
        name=name, architecture="llama", vocab_size=vocab_size, max_context=16, parameters=1,
        dtype="float32", device="cpu", tokenizer_folder="/nowhere",
    )  # fmt: skip


def test_sessions_are_read_on_from_behind_one_newest_first(store, clock):
    opened = [a_session(store).session_id for _ in range(3)]  # at the same moment
    clock.advance(seconds=1)
    newest = a_session(store)
    listed = [session.session_id for session in store.sessions_before(ANNE, None, 10)]

    assert listed == [newest.session_id, *sorted(opened)]
    last = store.session(ANNE, listed[1])
    rest = store.sessions_before(ANNE, (last.created_at, last.session_id), 10)
    assert [session.session_id for session in rest] == listed[2:]
    assert store.sessions_before(BOB, None, 10) == []


def test_a_project_is_a_label_that_its_owner_gives(store):
    session, other = a_session(store), a_session(store)
    for its in (session, other):
        model = a_model(its)
        store.enqueue(create_of(model), model=model)
    store.assign_project(ANNE, session.session_id, "atlas")

    assert store.session(ANNE, session.session_id).project_id == "atlas"
    [listed] = store.list_models(ANNE, project_id="atlas")
    assert listed.session_id == session.session_id
    assert store.count_models(ANNE, project_id="atlas") == 1
    assert store.count_models(ANNE) == 2
    with pytest.raises(NotFoundError):
        store.assign_project(BOB, session.session_id, "mine")


def test_clones_of_a_sampling_client_are_counted_from_one(store):
    store.create_sampler(a_sampler(a_session(store), "s"))

    assert [store.add_clone(ANNE, "s") for _ in range(3)] == [1, 2, 3]
    with pytest.raises(NotFoundError):
        store.add_clone(BOB, "s")
