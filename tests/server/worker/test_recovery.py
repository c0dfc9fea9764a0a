import pytest
from tests.server.rows import ANNE, a_checkpoint, a_model, waiting
from tests.server.worker.client import Client

from mint.core.errors import Fault
from mint.core.ids import ModelId, SamplerId
from mint.core.operations import ReleaseSampler, UnloadModel
from mint.server.store.records import Effects, ModelState, OperationStatus
from mint.server.store.store import Store
from mint.server.worker.recovery import Fate, fail_all, judge, recover

PINNED = {SamplerId("p"): ModelId("m")}


def fates(pending, running=()) -> list[str]:
    return [verdict.fate.value for verdict in judge(running, pending, PINNED)]


def test_what_ran_is_lost_whatever_it_was():
    assert fates([], running=[waiting(1, "Sample"), waiting(2, "CreateModel", "m")]) == [
        Fate.LOST, Fate.LOST,
    ]  # fmt: skip


def test_samples_of_files_wait_and_samples_of_memory_are_lost():
    queue = [waiting(1, "Sample", sampler="saved"), waiting(2, "Sample", sampler="p")]

    assert fates(queue) == [Fate.WAIT, Fate.LOST]


def test_a_model_still_to_be_made_keeps_all_that_follows():
    queue = [
        waiting(1, "CreateModelFrom", "m"),
        waiting(2, "ForwardBackward", "m"),
        waiting(3, "PinSampler", "m", "p"),
        waiting(4, "Sample", sampler="p"),
        waiting(5, "ReleaseSampler", sampler="p"),
        waiting(6, "UnloadModel", "m"),
    ]

    assert fates(queue) == [Fate.WAIT] * 6


def test_a_model_whose_creation_ran_is_lost_with_all_that_follows():
    running = [waiting(1, "CreateModel", "m")]
    queue = [waiting(2, "ForwardBackward", "m"), waiting(3, "PinSampler", "m", "p")]

    assert fates(queue, running) == [Fate.LOST] * 3


def test_the_end_of_what_is_lost_is_done():
    queue = [waiting(1, "UnloadModel", "m"), waiting(2, "ReleaseSampler", sampler="p")]

    assert fates(queue) == [Fate.DONE, Fate.DONE]


def test_the_loss_names_the_model_of_pinned_weights():
    (verdict,) = judge([], [waiting(1, "Sample", sampler="p")], PINNED)

    assert verdict.model_id == "m"


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "mint.db")
    yield store
    store.close()


def test_lost_training_says_from_which_checkpoint_to_resume(store):
    client = Client(store)
    model_id, create = client.create()
    model = a_model(client.session)
    store.finish(create, b"r", effects=Effects(model_id=model_id, model_state=ModelState.READY))
    _, save = client.save(model_id, "newest")
    store.finish(save, b"r", effects=Effects(checkpoint=a_checkpoint(model, "newest")))
    step, sample = client.step(model_id), client.sample()
    unload, release = (
        client.send(UnloadModel(model_id=model_id)),
        client.send(ReleaseSampler(sampler_id=SamplerId("gone"))),
    )

    ended = recover(store, "the engine process was killed by signal 9")

    assert sorted(ended) == sorted([step, unload, release])
    lost = client.record(step)
    assert lost.status is OperationStatus.FAILED
    assert lost.fault is Fault.SERVER
    assert lost.error is not None
    assert lost.error.startswith("The engine process was killed by signal 9.")
    assert f"tinker://{model_id}/weights/newest" in lost.error
    assert client.record(unload).status is OperationStatus.DONE
    assert client.record(sample).status is OperationStatus.PENDING
    assert store.model(ANNE, model_id).state is ModelState.LOST
    assert recover(store, "again") == []


def test_training_without_a_checkpoint_is_told_to_begin_anew(store):
    client = Client(store)
    model_id, create = client.create()
    store.take([create])
    recover(store, "the engine process ended")

    error = client.record(create).error
    assert error is not None
    assert "begin anew" in error
    assert store.model(ANNE, model_id).state is ModelState.FAILED


def test_without_an_engine_nothing_is_left_waiting(store):
    client = Client(store)
    operations = [client.sample(), client.create()[1]]
    store.take(operations[:1])

    assert fail_all(store, "the engine process died too often") == operations
    assert all("Restart the server" in (client.record(op).error or "") for op in operations)
