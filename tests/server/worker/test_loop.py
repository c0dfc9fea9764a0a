import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event
from tests.server.rows import ANNE, BOB
from tests.server.waiting import until
from tests.server.worker.client import Client
from tests.server.worker.fake_engine import ENDLESS, FakeEngine

from mint.core.errors import Fault, StorageError
from mint.core.ids import OperationId, SamplerId
from mint.core.operations import (
    Failure,
    LoadWeights,
    PassResult,
    ReleaseSampler,
    ResolveModel,
    SampleResult,
    Saved,
    UnloadModel,
)
from mint.server.channel.health import EnginePhase
from mint.server.scheduler.plan import Limits
from mint.server.store.database import utcnow
from mint.server.store.records import ModelState, OperationStatus
from mint.server.store.store import Store
from mint.server.worker.loop import Worker, remove_leftovers
from mint.server.worker.signals import Signals
from mint.wire import payloads


class Heard:
    """Collects what the worker reports."""

    def __init__(self) -> None:
        self.ids: list[OperationId] = []
        self.states: list[tuple[EnginePhase, str]] = []
        self.capacity: dict[str, Any] = {}

    def ended(self, operation_ids: Iterable[OperationId]) -> None:
        self.ids += operation_ids

    def state(
        self, phase: EnginePhase, detail: str, capacity: dict[str, Any] | None = None
    ) -> None:
        self.states.append((phase, detail))
        self.capacity = capacity or {}


class House:
    """A worker in a thread of its own, on a real store, with an engine that computes nothing."""

    def __init__(self, folder, limits: Limits | None = None) -> None:
        self.data = folder
        self.store = Store(folder / "mint.db")
        self.engine = FakeEngine()
        self.signals = Signals()
        self.heard = Heard()
        self.client = Client(self.store)
        self.worker = Worker(
            store=self.store,
            engine=self.engine,
            data=folder,
            signals=self.signals,
            reports=self.heard,
            limits=limits or Limits(),
        )
        self.thread = threading.Thread(target=self.worker.run)

    def open(self) -> None:
        self.thread.start()

    def close(self) -> None:
        self.signals.stop()
        if self.thread.is_alive():
            self.thread.join(30)
        self.store.close()

    def result(self, operation_id: OperationId, client: Client | None = None):
        """Wake the worker, wait for the end, and decode the result; fails on a failure."""
        record = self.ended(operation_id, client)
        assert record.error is None
        assert record.result is not None
        return payloads.decode_result(record.kind, record.result)

    def error(self, operation_id: OperationId, client: Client | None = None) -> tuple[str, Fault]:
        record = self.ended(operation_id, client)
        assert record.error is not None
        assert record.fault is not None
        return record.error, record.fault

    def ended(self, operation_id: OperationId, client: Client | None = None):
        self.signals.wake()
        until(lambda: operation_id in self.heard.ids)
        record = (client or self.client).record(operation_id)
        assert record.status.ended
        return record


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    house.open()
    yield house
    house.close()


@pytest.fixture
def quiet_house(tmp_path):
    """One whose worker has not started yet."""
    house = House(tmp_path)
    yield house
    house.close()


def test_a_models_life_from_creation_to_unload(house):
    client = house.client
    model_id, create = client.create()
    passing, step = client.forward_backward(model_id), client.step(model_id)
    path, save = client.save(model_id, "first", user_metadata={"k": "v"})
    sampler_id, pin = client.pin(model_id, "s")
    sample = client.sample(sampler_id, weights=sampler_id)
    unload = client.send(UnloadModel(model_id=model_id))

    assert house.result(create).lora.rank == 4
    result = house.result(passing)
    assert isinstance(result, PassResult)
    assert result.metrics["loss:sum"] == 3.0
    assert house.result(step).weights_version == 1
    saved = house.result(save)
    assert isinstance(saved, Saved)
    assert saved.path == path
    house.result(pin)
    assert isinstance(house.result(sample), SampleResult)
    house.result(unload)

    checkpoint = house.store.checkpoint(ANNE, path)
    assert (checkpoint.size_bytes, checkpoint.base_model, checkpoint.user_metadata) == (
        5, "tiny", {"k": "v"},
    )  # fmt: skip
    assert (house.data / checkpoint.folder / "weights").is_file()
    model = house.store.model(ANNE, model_id)
    assert (model.state, model.weights_version) == (ModelState.UNLOADED, 1)


def test_operations_of_a_model_start_in_order_of_arrival(quiet_house):
    client = quiet_house.client
    model_id, create = client.create()
    sent = [create]
    for _ in range(3):
        sent += [client.forward_backward(model_id), client.step(model_id)]
    quiet_house.open()
    quiet_house.ended(sent[-1])

    assert quiet_house.engine.started == sent


def test_a_failed_creation_fails_what_follows_and_says_where_to_look(house):
    model_id, create = house.client.create(base="wrong")
    step = house.client.step(model_id)

    assert house.error(create) == ("no such base model", Fault.USER)
    message, fault = house.error(step)
    assert "the answer to its creation says why" in message
    assert fault is Fault.USER
    assert house.store.model(ANNE, model_id).state is ModelState.FAILED


def test_a_model_resumes_from_a_checkpoint_with_its_shape(house):
    model_id, _ = house.client.create()
    path, save = house.client.save(model_id, "a")
    house.ended(save)
    resumed, create = house.client.create_from(1, path.replace("tinker://", "mint://"))

    assert house.result(create).base_model == "tiny"
    model = house.store.model(ANNE, resumed)
    assert (model.state, model.base_model, model.lora.rank) == (ModelState.READY, "tiny", 2)


def test_another_owners_checkpoint_cannot_be_read(house):
    model_id, _ = house.client.create()
    path, save = house.client.save(model_id, "a")
    house.ended(save)
    bob = Client(house.store, BOB)
    bobs_model, create = bob.create()
    house.ended(create, bob)
    load = bob.send(LoadWeights(model_id=bobs_model, path=path, with_optimizer=False))

    for operation_id in (bob.create_from(1, path)[1], bob.sample(weights=path), load):
        message, fault = house.error(operation_id, bob)
        assert "there is no checkpoint" in message
        assert fault is Fault.USER


def test_a_name_that_is_taken_is_kept_unless_overwriting_is_asked_for(house):
    model_id, _ = house.client.create()
    path, first = house.client.save(model_id, "a")
    _, again = house.client.save(model_id, "a")
    house.result(first)
    message, fault = house.error(again)
    assert path in message
    assert "overwrite=True" in message
    assert fault is Fault.USER

    old = house.store.checkpoint(ANNE, path).folder
    house.result(house.client.save(model_id, "a", overwrite=True)[1])
    new = house.store.checkpoint(ANNE, path).folder
    until(lambda: not (house.data / old).exists())
    assert (house.data / new).is_dir()


def test_a_checkpoint_with_a_lifetime_expires(house):
    model_id, _ = house.client.create()
    path, save = house.client.save(model_id, "a", ttl_seconds=3600)
    house.result(save)

    expires = house.store.checkpoint(ANNE, path).expires_at
    assert timedelta(minutes=59) < expires - utcnow() <= timedelta(hours=1)


def test_a_bad_checkpoint_name_fails_with_the_rule(house):
    model_id, _ = house.client.create()

    assert (
        "beginning with a letter or digit" in house.error(house.client.save(model_id, ".a")[1])[0]
    )


def test_files_removed_by_hand_are_named(house):
    model_id, _ = house.client.create()
    path, save = house.client.save(model_id, "a")
    house.result(save)
    (house.data / house.store.checkpoint(ANNE, path).folder / "weights").unlink()
    (house.data / house.store.checkpoint(ANNE, path).folder).rmdir()

    assert "are missing from" in house.error(house.client.sample(weights=path))[0]


def test_a_running_sample_ends_when_it_is_cancelled(house):
    sample = house.client.sample(seed=ENDLESS)
    house.signals.wake()
    until(lambda: sample in house.engine.started)
    house.signals.cancel(sample)

    assert house.error(sample)[1] is Fault.CANCELLED


@pytest.mark.parametrize("what", ["pending", "take", "finish_all"])
def test_a_store_that_refuses_for_a_while_costs_neither_weights_nor_results(
    quiet_house, monkeypatch, what
):
    monkeypatch.setattr("mint.server.worker.loop.STORE_AGAIN_S", 0.01)
    done, refusals = getattr(quiet_house.store, what), []

    def full_at_first(*args, **kwargs):
        if len(refusals) < 3:
            refusals.append(args)
            raise StorageError("database or disk is full")
        return done(*args, **kwargs)

    monkeypatch.setattr(quiet_house.store, what, full_at_first)
    _, create = quiet_house.client.create()
    quiet_house.open()

    assert quiet_house.result(create).lora.rank == 4
    assert len(refusals) == 3
    assert (EnginePhase.UP, "waiting: database or disk is full") in quiet_house.heard.states


def test_one_unreadable_payload_leaves_its_neighbours_alone(quiet_house):
    broken, whole = quiet_house.client.sample(), quiet_house.client.sample()
    with quiet_house.store.writing() as tx:
        tx.exec_driver_sql("UPDATE operations SET payload = x'00' WHERE id = ?", (int(broken),))
    quiet_house.open()

    message, fault = quiet_house.error(broken)
    assert "its log has the details" in message
    assert fault is Fault.SERVER
    quiet_house.result(whole)


def _unreadable(house: House, operation_id: OperationId) -> None:
    with house.store.writing() as tx:
        tx.exec_driver_sql(
            "UPDATE operations SET payload = x'08' WHERE id = ?", (int(operation_id),)
        )


def _cancelled(house: House, operation_id: OperationId) -> None:
    house.store.cancel(ANNE, operation_id)


def _refused(house: House, operation_id: OperationId) -> None:
    house.store.finish(
        operation_id, None, Failure("data[0] is wrong", Fault.USER), was_started=False
    )


@pytest.mark.parametrize("spoil", [_cancelled, _unreadable, _refused])
def test_a_step_is_refused_after_a_pass_that_never_reached_the_engine(quiet_house, spoil):
    client = quiet_house.client
    model_id, _ = client.create()
    client.forward_backward(model_id)
    lost = client.forward_backward(model_id)
    step = client.step(model_id)  # sent in one go, as clients do, before anything went wrong
    after = [client.forward_backward(model_id), client.step(model_id)]
    spoil(quiet_house, lost)
    quiet_house.open()

    message, fault = quiet_house.error(step)
    assert f"forward_backward (request {lost}) failed since the last step" in message
    assert fault is Fault.USER
    assert quiet_house.result(after[-1]).weights_version == 1


def test_a_model_found_on_demand_is_on_offer_once_its_operation_has_ended(house):
    house.result(house.client.send(ResolveModel(base_model="found")))

    assert [model.name for model in house.store.served()] == ["found"]


def test_weights_that_are_gone_are_said_to_be_gone(house):
    model_id, _ = house.client.create()
    sampler_id, _ = house.client.pin(model_id, "s")
    house.ended(house.client.send(ReleaseSampler(sampler_id=sampler_id)))
    house.ended(house.client.send(UnloadModel(model_id=model_id)))

    assert (
        "there is no sampling session"
        in house.error(house.client.sample(sampler_id, weights=sampler_id))[0]
    )
    assert "has been unloaded" in house.error(house.client.step(model_id))[0]


def test_a_model_of_an_earlier_engine_process_is_lost_with_a_hint(house):
    model_id, create = house.client.create()
    path, save = house.client.save(model_id, "a")
    house.result(create)
    house.result(save)
    house.worker._dispatch.alive.models.clear()  # as in a fresh process

    message, fault = house.error(house.client.step(model_id))
    assert path in message
    assert fault is Fault.SERVER


def test_no_more_samples_are_inside_the_engine_than_allowed(tmp_path):
    house = House(tmp_path, Limits(samples=3))
    samples = [house.client.sample() for _ in range(10)]
    house.open()
    for sample in samples:
        house.ended(sample)
    house.close()

    assert house.engine.most_inside == 3


def test_a_stop_leaves_the_queue_and_what_had_begun_in_the_store(house):
    running = house.client.sample(seed=ENDLESS)
    house.signals.wake()
    until(lambda: running in house.engine.started)
    house.signals.stop()
    house.thread.join(30)
    late = house.client.sample()

    waiting = [operation.operation_id for operation in house.store.pending()]
    assert waiting == [running, late]
    assert house.client.record(running).status is OperationStatus.PENDING


def test_an_idle_worker_leaves_the_database_alone(house):
    house.ended(house.client.sample())
    until(lambda: house.heard.states[-1] == (EnginePhase.UP, "idle"))
    statements: list[str] = []
    event.listen(
        house.store._engine,
        "before_cursor_execute",
        lambda _c, _cur, statement, *_: statements.append(statement),
    )
    threading.Event().wait(1.0)
    assert len([s for s in statements if s.startswith("SELECT")]) <= 1  # the slow safety look

    house.ended(house.client.sample())
    assert statements


def test_a_busy_worker_does_not_read_the_queue_at_every_step(house):
    statements: list[str] = []
    event.listen(
        house.store._engine,
        "before_cursor_execute",
        lambda _c, _cur, statement, *_: statements.append(statement),
    )
    house.ended(house.client.sample(max_tokens=500))

    reads = [s for s in statements if "FROM operations" in s and "ORDER BY operations.id" in s]
    assert len(reads) < 50


def test_what_ends_together_is_written_together(quiet_house):
    client = quiet_house.client
    asked = [client.sample(max_tokens=3) for _ in range(20)]
    transactions: list[str] = []
    event.listen(
        quiet_house.store._engine,
        "before_cursor_execute",
        lambda _c, _cur, statement, *_: transactions.append(statement),
    )
    quiet_house.open()
    until(lambda: set(asked) <= set(quiet_house.heard.ids))

    assert all(client.record(one).status is OperationStatus.DONE for one in asked)
    # One that takes them, one that ends them, and perhaps one of a first look that came too early.
    assert transactions.count("BEGIN IMMEDIATE") <= 3
    [used] = [row for row in quiet_house.store.usage_by_key(ANNE) if row.sampled_tokens]
    assert (used.operations, used.sampled_tokens, used.failed) == (20, 60, 0)


def test_the_time_an_engine_computes_is_told_and_waiting_is_not(house):
    began = time.monotonic()
    house.result(house.client.sample(max_tokens=5))  # five steps, of 1 ms or more each
    until(lambda: house.heard.capacity["busy_s"] >= 0.005)
    took_s = time.monotonic() - began
    computed_s = house.heard.capacity["busy_s"]
    assert computed_s <= took_s

    time.sleep(2 * took_s)
    house.result(house.client.sample(max_tokens=1))
    until(lambda: house.heard.capacity["busy_s"] > computed_s)
    assert house.heard.capacity["busy_s"] < computed_s + 2 * took_s


def test_folders_of_saves_that_never_ended_are_removed(house):
    model_id, _ = house.client.create()
    path, save = house.client.save(model_id, "a")
    house.result(save)
    (house.data / "checkpoints" / "stray").mkdir()
    remove_leftovers(house.store, house.data)

    left = [folder.name for folder in (house.data / "checkpoints").iterdir()]
    assert left == [house.store.checkpoint(ANNE, path).folder.partition("/")[2]]


def test_a_sampler_whose_pin_failed_says_so(house):
    model_id, _ = house.client.create()
    sampler_id, pin = house.client.pin(model_id, "s")
    house.result(pin)
    house.worker._dispatch.alive.samplers.discard(SamplerId(sampler_id))

    message, _ = house.error(house.client.sample(sampler_id, weights=sampler_id))
    assert "holds no weights" in message
