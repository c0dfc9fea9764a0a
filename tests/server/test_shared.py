"""Several API processes on one PostgreSQL and one engine process."""

import os
import signal

import pytest
from tests.server.served import Served, alive
from tests.server.waiting import until
from tests.server.worker.fake_engine import ENDLESS

from mint.server.store.store import Store

pytestmark = pytest.mark.postgres


@pytest.fixture
def start(tmp_path, postgres):
    """Starts API processes on one data folder and one database; ends them after the test."""
    database, started = postgres.new_database(), []

    def start_one(**fields) -> Served:
        given = {"database": database, **fields}
        started.append(Served(tmp_path / "data", **given))
        return started[-1]

    yield start_one
    for served in started:
        served.kill(signal.SIGTERM)


@pytest.fixture
def two(start):
    return start().ready(), start().ready()


def test_work_sent_through_one_process_is_fetched_through_the_other(two):
    one, other = two
    assert one.engine_pid() == other.engine_pid()
    assert other.health()["engine"]["state"] == "up"
    model = one.model(one.session())

    assert "error" not in other.result(one.step(model, seq=1))
    sampler = other.sampler(other.session())
    assert "error" not in one.result(other.sample(sampler, seq=0))


def test_who_waits_at_the_other_process_is_woken_by_a_withdrawal(two):
    one, other = two
    sampler = one.sampler(one.session())
    running = one.sample(sampler, seq=0, seed=ENDLESS)
    until(lambda: "1 operations running" in str(other.health()))
    one.cancel(running)

    assert "cancelled" in other.result(running)["error"]


def test_when_the_first_process_leaves_the_other_keeps_the_engine_and_its_weights(two):
    one, other = two
    engine = one.engine_pid()
    model = one.model(one.session())
    one.process.send_signal(signal.SIGTERM)

    assert one.wait() == 0
    assert alive(engine)
    assert "error" not in other.result(other.step(model, seq=1))
    other.process.send_signal(signal.SIGTERM)
    assert other.wait() == 0
    until(lambda: not alive(engine))


def test_when_the_first_process_is_killed_the_other_replaces_a_dead_engine(two):
    one, other = two
    model = one.model(one.session())
    one.kill()
    os.kill(other.engine_pid(), signal.SIGKILL)

    until(lambda: other.health()["status"] == "degraded")
    until(lambda: other.health()["status"] == "ok")
    assert "error" in other.result(other.step(model, seq=1))
    sampler = other.sampler(other.session())
    assert "error" not in other.result(other.sample(sampler, seq=0))


def test_a_dead_engine_is_replaced_once_for_all(two):
    one, other = two
    sampler = one.sampler(one.session())
    lost = one.sample(sampler, seq=0, seed=ENDLESS)
    until(lambda: "1 operations running" in str(other.health()))
    engine = one.engine_pid()
    os.kill(engine, signal.SIGKILL)

    assert "killed by signal 9" in other.result(lost)["error"]
    until(lambda: one.health()["status"] == other.health()["status"] == "ok")
    assert one.engine_pid() != engine
    assert "error" not in other.result(other.sample(sampler, seq=1))


def test_another_data_folder_on_the_database_is_refused_and_hurts_nobody(start, tmp_path):
    first = start().ready()
    sampler = first.sampler(first.session())
    running = first.sample(sampler, seq=0, seed=ENDLESS)
    until(lambda: "1 operations running" in str(first.health()))
    database = first.settings.database
    stranger = Served(tmp_path / "elsewhere", database=database)

    assert stranger.wait() != 0
    assert "another engine process works on the database" in stranger.log.read_text()
    store = Store(str(database))
    assert [row.operation_id for row in store.running()] == [running]
    store.close()
