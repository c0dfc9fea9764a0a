import os
import signal

import pytest
from tests.server.served import Served, alive
from tests.server.waiting import until
from tests.server.worker.fake_engine import ENDLESS

from mint.core.errors import ConfigError
from mint.core.ids import Owner
from mint.server.process import check_binding
from mint.server.settings import ServerSettings
from mint.server.store.store import Store


@pytest.fixture
def data(tmp_path):
    """A data folder; whatever still runs on it is ended at the end."""
    folder = tmp_path / "data"
    yield folder
    for served in STARTED:
        served.kill(signal.SIGTERM)
    STARTED.clear()


STARTED: list[Served] = []


def start(data, **fields) -> Served:
    served = Served(data, **fields)
    STARTED.append(served)
    return served


def test_a_killed_engine_process_costs_its_live_weights_and_nothing_else(data):
    served = start(data).ready()
    session = served.session()
    model = served.model(session)
    path = served.save(model, "a", seq=1)
    sampler = served.sampler(session)
    running = served.sample(sampler, seq=0, seed=ENDLESS)
    until(lambda: "1 operations running" in str(served.health()))
    os.kill(served.engine_pid(), signal.SIGKILL)

    assert "killed by signal 9" in served.result(running)["error"]
    until(lambda: served.health()["status"] == "ok")
    lost = served.result(served.step(model, seq=2))
    assert path in lost["error"]
    again = served.result(served.sample(sampler, seq=1))
    assert "error" not in again
    resumed = served.post(
        "load_weights", session_id=session, model_seq_id=1, path=path, optimizer=True
    )
    assert "error" not in served.result(resumed["request_id"])


def test_live_weights_survive_the_death_of_the_api_process_but_not_other_settings(data):
    served = start(data).ready()
    session = served.session()
    model = served.model(session)
    engine = served.engine_pid()
    served.kill()

    again = start(data).ready()
    assert again.engine_pid() == engine
    assert "error" not in again.result(again.step(model, seq=1))
    again.kill()

    other = start(data, models=("tiny", "other")).ready()
    assert other.engine_pid() != engine
    assert not alive(engine)
    assert "error" in other.result(other.step(model, seq=2))


def test_an_engine_without_an_api_process_leaves_after_its_time(data):
    served = start(data, orphan_timeout_s=0.1).ready()
    engine = served.engine_pid()
    served.kill()

    until(lambda: not alive(engine))
    assert "no API process for" in served.log.read_text()
    assert not (data / "engine.json").exists()


def test_a_stopped_server_leaves_its_queue_and_the_next_one_works_it_off(data):
    served = start(data).ready()
    sampler = served.sampler(served.session())
    endless = [served.sample(sampler, seq=seq, seed=ENDLESS) for seq in range(2)]
    until(lambda: "2 operations running" in str(served.health()))
    engine = served.engine_pid()
    served.process.send_signal(signal.SIGTERM)

    assert served.wait() == 0
    assert not alive(engine)
    assert not (data / "server.json").exists()
    store = Store(data / "mint.db")
    waiting = [operation.operation_id for operation in store.pending()]
    assert waiting == endless
    store.close()

    again = start(data).ready()
    until(lambda: "2 operations running" in str(again.health()))


def loading(served: Served) -> str | None:
    detail = served.health()["engine"]["detail"]
    return detail if "loading" in detail else None


def test_whoever_waits_for_a_long_load_is_told_of_it(data):
    served = start(data, models=("tiny", "slow")).ready()
    session = served.session()
    request = served.post("create_model", session_id=session, model_seq_id=0, base_model="slow")
    assert "loading base model slow: 40 %, " in str(until(lambda: loading(served)))

    (data / "loaded").touch()
    assert "error" not in served.result(request["request_id"])
    until(lambda: served.health()["engine"]["detail"] == "idle")


def test_a_model_that_is_not_there_ends_the_start_with_the_engines_words(data):
    served = start(data, models=("missing",))

    assert served.wait() != 0
    assert "no base model 'missing' here" in served.log.read_text()
    assert not (data / "server.json").exists()


def test_a_second_server_on_the_folder_is_refused(data):
    start(data).ready()
    second = start(data)

    assert second.wait() != 0
    assert "another server runs on" in second.log.read_text()


def test_an_idle_server_leaves_with_its_engine(data):
    served = start(data, exit_when_idle_s=0.5).ready()
    engine = served.engine_pid()

    assert served.wait() == 0
    assert not alive(engine)
    assert "leaving: idle" in served.log.read_text()


def test_work_keeps_an_idle_server_there(data):
    served = start(data, exit_when_idle_s=2.0).ready()
    sampler = served.sampler(served.session())
    served.sample(sampler, seq=0, seed=ENDLESS)
    with pytest.raises(Exception, match="timed out"):
        served.process.wait(4)


def test_neither_banner_nor_log_holds_a_secret(data):
    served = start(data, log_format="json").ready()
    served.session()
    secret = (data / "key").read_text().strip().removeprefix("sk-")
    served.kill(signal.SIGTERM)

    log = served.log.read_text()
    assert "is serving at http://127.0.0.1:" in log
    assert str(data / "key") in log
    assert secret not in log


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_an_open_address_is_refused_until_there_is_a_key(tmp_path, host):
    store = Store(tmp_path / "mint.db")
    settings = ServerSettings(data=tmp_path, models=("tiny",), host=host)
    with pytest.raises(ConfigError, match=r"mint keys create NAME"):
        check_binding(settings, store)

    key = store.create_key(Owner("anne"), "n", "hash", "hint", False)
    check_binding(settings, store)
    store.revoke_key(key.key_id)
    with pytest.raises(ConfigError):
        check_binding(settings, store)
    store.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_needs_no_key(tmp_path, host):
    store = Store(tmp_path / "mint.db")
    check_binding(ServerSettings(data=tmp_path, models=("tiny",), host=host), store)
    store.close()
