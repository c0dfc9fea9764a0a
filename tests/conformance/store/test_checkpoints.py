from dataclasses import replace
from datetime import timedelta

import pytest
from tests.server.rows import ANNE, BOB, a_checkpoint, a_model, a_session, an_operation

from mint.core.checkpoints import CheckpointKind
from mint.core.errors import NotFoundError, UserError
from mint.core.ids import ModelId
from mint.server.store.records import Effects, ModelState, NewCheckpoint
from mint.server.store.schema import checkpoints
from mint.server.store.store import Store


def save(store: Store, checkpoint: NewCheckpoint) -> list[str]:
    operation_id = store.enqueue(an_operation("SaveWeights"))
    return store.finish(operation_id, b"r", effects=Effects(checkpoint=checkpoint))


@pytest.fixture
def model(store):
    return a_model(a_session(store))


def test_a_saved_checkpoint_is_found_by_its_path(store, model):
    save(store, a_checkpoint(model, "a", user_metadata={"k": "v"}))

    found = store.checkpoint(ANNE, f"tinker://{model.model_id}/weights/a")
    assert (found.base_model, found.lora, found.user_metadata) == ("base", model.lora, {"k": "v"})


def test_another_owners_checkpoint_does_not_exist_unless_it_is_public(store, model):
    saved = a_checkpoint(model, "a")
    save(store, saved)
    with pytest.raises(NotFoundError):
        store.checkpoint(BOB, saved.path)

    with store.writing() as tx:
        tx.execute(checkpoints.update().values(is_public=True))
    assert store.checkpoint(BOB, saved.path).path == saved.path
    with pytest.raises(NotFoundError):
        store.delete_checkpoint(BOB, saved.path)


def test_a_checkpoint_saved_again_gives_the_old_folder_up(store, model):
    assert save(store, a_checkpoint(model, "a", folder="checkpoints/one")) == []
    assert save(store, a_checkpoint(model, "a", folder="checkpoints/two")) == ["checkpoints/one"]
    assert store.checkpoint_folders() == {"checkpoints/two"}


def test_an_expired_checkpoint_is_not_found_and_its_folder_is_given_up(store, model, clock):
    clock.advance(hours=1)
    saved = a_checkpoint(model, "a", expires_at=clock.now)
    clock.advance(hours=-1)
    save(store, saved)
    assert store.checkpoint(ANNE, saved.path)

    clock.advance(hours=1)
    with pytest.raises(NotFoundError):
        store.checkpoint(ANNE, saved.path)
    assert store.list_checkpoints(ANNE) == []
    assert store.forget_expired() == [saved.folder]
    assert store.forget_expired() == []


def test_checkpoints_are_listed_newest_first_and_by_model(store, model, clock):
    other = a_model(a_session(store), seq=1)
    for owner, name in ((model, "a"), (other, "b"), (model, "c")):
        save(store, a_checkpoint(owner, name))
        clock.advance(seconds=1)

    assert [c.name for c in store.list_checkpoints(ANNE)] == ["c", "b", "a"]
    assert [c.name for c in store.list_checkpoints(ANNE, model.model_id)] == ["c", "a"]
    assert [c.name for c in store.list_checkpoints(ANNE, limit=1, offset=1)] == ["b"]
    assert store.list_checkpoints(BOB) == []


def test_training_resumes_from_the_newest_training_checkpoint(store, model, clock):
    for kind, name in (("weights", "a"), ("weights", "b"), ("sampler_weights", "c")):
        save(store, a_checkpoint(model, name, kind=kind))
        clock.advance(seconds=1)

    newest = store.newest_checkpoint(model.model_id)
    assert newest is not None
    assert newest.name == "b"
    assert store.newest_checkpoint(ModelId("unknown")) is None


def test_a_deleted_checkpoint_gives_its_folder_up(store, model):
    saved = a_checkpoint(model, "a")
    save(store, saved)

    assert store.delete_checkpoint(ANNE, saved.path) == saved.folder
    with pytest.raises(NotFoundError):
        store.delete_checkpoint(ANNE, saved.path)


def test_publishing_and_hiding_again_may_be_said_twice(store, model):
    saved = a_checkpoint(model, "a")
    save(store, saved)

    for is_public in (True, True, False, False):
        store.set_public(ANNE, saved.path, is_public)
        assert store.checkpoint(ANNE, saved.path).is_public is is_public
    with pytest.raises(NotFoundError):
        store.set_public(BOB, saved.path, True)


def test_an_end_can_be_set_moved_and_taken_away(store, model, clock):
    saved = a_checkpoint(model, "a")
    save(store, saved)
    later = clock.now + timedelta(hours=1)

    store.set_expiry(ANNE, saved.path, later)
    assert store.checkpoint(ANNE, saved.path).expires_at == later
    store.set_expiry(ANNE, saved.path, None)
    clock.advance(hours=2)
    assert store.checkpoint(ANNE, saved.path).expires_at is None
    store.set_expiry(ANNE, saved.path, clock.now)
    with pytest.raises(NotFoundError):  # it is over, and stays so
        store.set_expiry(ANNE, saved.path, None)


def test_a_listing_and_its_count_agree_on_the_kinds(store, model):
    for kind in CheckpointKind:
        save(store, a_checkpoint(model, "a", kind=kind.value))
    old = (CheckpointKind.TRAINING, CheckpointKind.SAMPLER)

    assert store.count_checkpoints(ANNE) == 3
    assert store.count_checkpoints(ANNE, kinds=old) == 2
    assert {c.kind for c in store.list_checkpoints(ANNE, kinds=old)} == {k.value for k in old}
    assert store.count_checkpoints(BOB) == 0


def test_a_copy_has_a_run_of_its_own_that_never_lives(store, model):
    store.add_copy(model, a_checkpoint(model, "a"))

    assert store.model(ANNE, model.model_id).state is ModelState.UNLOADED
    assert store.newest_checkpoint(model.model_id).name == "a"
    with pytest.raises(UserError, match="taken"):
        store.add_copy(model, a_checkpoint(model, "b"))
    with pytest.raises(UserError, match="session"):
        store.add_copy(
            replace(model, session_id="none", model_id="other"), a_checkpoint(model, "b")
        )
    assert store.count_checkpoints(ANNE) == 1
