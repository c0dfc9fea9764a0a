"""What goes as time passes, and what stays."""

import asyncio
from pathlib import Path

import pytest
from tests.server.rows import (
    ANNE,
    a_checkpoint,
    a_model,
    a_sampler,
    a_session,
    an_operation,
    create_of,
)
from tests.server.service.conftest import Clock
from tests.server.still_link import StillLink

from mint.core.errors import NotFoundError
from mint.core.operations import Done
from mint.server.service.checkpoints import remove_folders
from mint.server.service.janitor import Janitor
from mint.server.service.sessions import SessionService
from mint.server.store.records import Effects
from mint.server.store.store import Store
from mint.wire import payloads

DONE = payloads.encode_result(Done())


@pytest.fixture
def janitor(store: Store, link: StillLink, clock: Clock, tmp_path: Path) -> Janitor:
    return Janitor(
        store,
        SessionService(store, link),
        tmp_path,
        session_timeout_s=600,
        result_retention_s=3600,
        clock=clock,
    )


def tidy(janitor: Janitor) -> None:
    asyncio.run(janitor.tidy())


def test_a_silent_session_is_ended_and_its_model_unloaded(
    store: Store, clock: Clock, janitor: Janitor
):
    session = a_session(store)
    model = a_model(session)
    store.enqueue(create_of(model), model=model)
    clock.forward(minutes=11)

    tidy(janitor)
    tidy(janitor)  # once is enough

    assert store.session(ANNE, session.session_id).finished_at == clock.now
    assert [row.kind for row in store.pending()] == ["CreateModel", "UnloadModel"]


def test_what_is_left_in_an_ended_session_leaves_memory(
    store: Store, clock: Clock, janitor: Janitor
):
    session = a_session(store)
    made_late = a_model(session)
    store.finish_session(ANNE, session.session_id, "success")  # and the process was killed
    store.enqueue(create_of(made_late), model=made_late)
    store.create_sampler(a_sampler(session, "s"))

    tidy(janitor)
    tidy(janitor)

    assert sorted(row.kind for row in store.pending()) == [
        "CreateModel", "ReleaseSampler", "UnloadModel",
    ]  # fmt: skip


def test_a_session_with_a_heartbeat_or_work_lives_on(store: Store, clock: Clock, janitor: Janitor):
    beating, working = a_session(store), a_session(store)
    model = a_model(working)
    store.enqueue(create_of(model), model=model)
    clock.forward(minutes=11)
    store.touch_session(ANNE, beating.session_id)
    store.enqueue(an_operation("OptimStep", model_id=model.model_id, scope=model.model_id))

    tidy(janitor)

    for session in (beating, working):
        assert store.session(ANNE, session.session_id).finished_at is None


def test_results_are_kept_for_their_time_and_no_longer(
    store: Store, clock: Clock, janitor: Janitor
):
    old, waiting = store.enqueue(an_operation()), store.enqueue(an_operation())
    store.finish(old, DONE)
    clock.forward(minutes=59)
    tidy(janitor)
    assert store.operation(ANNE, old).result == DONE

    clock.forward(minutes=2)
    tidy(janitor)

    with pytest.raises(NotFoundError):
        store.operation(ANNE, old)
    assert [row.operation_id for row in store.pending()] == [waiting]


def test_an_expired_checkpoint_goes_with_its_files(
    store: Store, clock: Clock, janitor: Janitor, tmp_path: Path
):
    model = a_model(a_session(store))
    lasting = tmp_path / "checkpoints" / "lasting"
    passing = tmp_path / "checkpoints" / "passing"
    for folder, expires_at in ((lasting, None), (passing, clock.now)):
        folder.mkdir(parents=True)
        checkpoint = a_checkpoint(model, folder.name, expires_at=expires_at)
        store.finish(
            store.enqueue(an_operation("SaveWeights")), DONE, effects=Effects(checkpoint=checkpoint)
        )
    clock.forward(seconds=1)

    tidy(janitor)

    assert lasting.is_dir()
    assert not passing.exists()


@pytest.mark.parametrize("folder", ["", ".", "..", "../outside", "/"])
def test_only_what_lies_in_the_data_folder_is_ever_removed(tmp_path: Path, folder: str):
    data = tmp_path / "data"
    outside = tmp_path / "outside"
    data.mkdir()
    outside.mkdir()

    remove_folders(data, [folder, str(outside)])

    assert data.is_dir()
    assert outside.is_dir()


def test_a_failing_round_is_not_the_last_one(janitor: Janitor, monkeypatch: pytest.MonkeyPatch):
    third = asyncio.Event()
    rounds = []

    async def broken() -> None:
        rounds.append(len(rounds))
        if len(rounds) == 3:
            third.set()
        raise OSError("the disk is full")

    monkeypatch.setattr(janitor, "tidy", broken)
    monkeypatch.setattr("mint.server.service.janitor.ROUND_S", 0.0)

    async def run_some() -> None:
        task = asyncio.create_task(janitor.run())
        await third.wait()
        task.cancel()

    asyncio.run(asyncio.wait_for(run_some(), timeout=30))

    assert len(rounds) >= 3
