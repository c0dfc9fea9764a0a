"""What was computed for whom, and what is stored for them."""

from datetime import timedelta

import pytest
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
from mint.core.ids import KeyId
from mint.core.operations import Failure
from mint.server.store.records import Effects, NewCheckpoint, NewModel, NewSession, Tokens
from mint.server.store.store import Store

KEY = KeyId("key-1")


@pytest.fixture
def model(store: Store) -> NewModel:
    session = store.create_session(
        NewSession(owner=ANNE, idempotency_key=None, key_id=KEY, project_id="atlas")
    )
    model = a_model(session)
    store.enqueue(create_of(model), model=model)
    return model


def train(store: Store, model: NewModel, tokens: int, failure: Failure | None = None) -> None:
    passed = store.enqueue(
        an_operation("ForwardBackward", owner=model.owner, model_id=model.model_id)
    )
    result = None if failure else b"r"
    store.finish(passed, result, failure, Effects(tokens=Tokens(trained=tokens)))


def save(store: Store, checkpoint: NewCheckpoint) -> None:
    saved = store.enqueue(
        an_operation("SaveWeights", owner=checkpoint.owner, model_id=checkpoint.model_id)
    )
    store.finish(saved, b"r", effects=Effects(checkpoint=checkpoint))


def test_usage_adds_up_within_an_hour_and_apart_over_hours(store: Store, model: NewModel, clock):
    first = clock.now
    train(store, model, 5)
    train(store, model, 7, Failure("no", Fault.USER))
    clock.advance(hours=1, minutes=10)
    train(store, model, 11)

    hours = store.usage(ANNE)
    assert [(u.hour, u.operations, u.failed, u.trained_tokens) for u in hours] == [
        (first, 2, 1, 12),
        (first + timedelta(hours=1), 1, 0, 11),
    ]
    assert {(u.key_id, u.base_model) for u in hours} == {(KEY, "base")}
    [total] = store.usage_by_key(ANNE)
    assert (total.operations, total.failed, total.trained_tokens) == (3, 1, 23)
    assert store.usage(ANNE, since=first + timedelta(hours=1)) == hours[1:]
    assert store.usage(ANNE, before=first + timedelta(hours=1)) == hours[:1]


def test_a_sample_counts_for_the_key_of_its_session(store: Store, model: NewModel):
    store.create_sampler(a_sampler(store.session(ANNE, model.session_id), "s"))
    drawn = store.enqueue(an_operation("Sample", sampler_id="s"))
    store.finish(drawn, b"r", effects=Effects(tokens=Tokens(prompt=3, sampled=8)))

    [used] = store.usage(ANNE)
    assert (used.key_id, used.prompt_tokens, used.sampled_tokens) == (KEY, 3, 8)


def test_an_operation_that_ends_twice_counts_once(store: Store, model: NewModel):
    passed = store.enqueue(an_operation("ForwardBackward", model_id=model.model_id))
    for _ in range(2):
        store.finish(passed, b"r", effects=Effects(tokens=Tokens(trained=5)))

    [used] = store.usage(ANNE)
    assert used.trained_tokens == 5


def test_housekeeping_is_nobodys_usage(store: Store, model: NewModel):
    store.finish(store.enqueue(an_operation("UnloadModel", model_id=model.model_id)), b"r")

    assert store.usage() == []


def test_usage_and_storage_of_one_owner_leave_the_others_out(store: Store, model: NewModel):
    others = a_model(a_session(store, BOB))
    store.enqueue(create_of(others), model=others)
    train(store, model, 5)
    train(store, others, 6)
    save(store, a_checkpoint(model, "a", size_bytes=10))
    save(store, a_checkpoint(model, "b", size_bytes=20))
    save(store, a_checkpoint(others, "c", size_bytes=40))

    assert [u.trained_tokens for u in store.usage(BOB)] == [6]
    assert [u.trained_tokens for u in store.usage()] == [5, 6]
    assert [(s.owner, s.project_id, s.checkpoints, s.size_bytes) for s in store.storage()] == [
        (ANNE, "atlas", 2, 30),
        (BOB, None, 1, 40),
    ]
    assert [s.size_bytes for s in store.storage(BOB)] == [40]
    assert store.session_storage([model.session_id]) == {model.session_id: (2, 30)}


def test_a_checkpoint_saved_counts_even_when_it_is_gone(store: Store, model: NewModel):
    checkpoint = a_checkpoint(model, "a")
    save(store, checkpoint)
    store.delete_checkpoint(ANNE, checkpoint.path)

    assert [u.checkpoints for u in store.usage(ANNE)] == [1]


def test_a_key_remembers_when_it_was_used(store: Store, clock):
    key = store.create_key(ANNE, "laptop", "hash", "wxyz", False)
    assert key.last_used_at is None
    store.note_key_use(key.key_id)

    assert store.key(key.key_id).last_used_at == clock.now
    with pytest.raises(NotFoundError):
        store.key(KeyId("key-none"))
