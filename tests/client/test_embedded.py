"""Starting, joining and replacing the local server. `mint serve` is played by fake_serve.py."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mint.client import connect, embedded, local_server, settings
from mint.client.settings import EmbeddedSettings
from mint.core.errors import ConfigError, ServerFaultError

FAKE = Path(__file__).with_name("fake_serve.py")


def serve(mode: str) -> list[str]:
    return [sys.executable, str(FAKE), mode]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    server = local_server.recorded(tmp_path)
    if server is not None and local_server.is_alive(server.pid):
        os.kill(server.pid, signal.SIGTERM)
        wait_until(lambda: not local_server.is_alive(server.pid))


def wait_until(happened, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def starts(home: Path) -> list[str]:
    return (home / "data" / "starts").read_text().splitlines()


def test_the_first_client_starts_a_server_and_the_second_joins_it(home: Path):
    said: list[str] = []
    config = EmbeddedSettings(home=home)

    first = embedded.join_or_start(config, serve=serve("ok"), say=said.append)
    second = embedded.join_or_start(config, serve=serve("ok"), say=said.append)

    assert first == second
    assert first.key == "sk-local"
    assert len(starts(home)) == 1
    assert said == [
        f"mint: local server at {first.url} (data {home / 'data'}; stops when idle)"
    ]  # once per process


def test_the_configured_models_are_served(home: Path):
    config = EmbeddedSettings(home=home, models=("a", "b=/c"))
    embedded.join_or_start(config, serve=serve("ok"))
    assert starts(home) == ["['a', 'b=/c']"]


def test_two_processes_at_once_start_one_server(home: Path):
    script = (
        "import sys; from pathlib import Path;"
        "from mint.client.embedded import join_or_start, EmbeddedSettings;"
        "print(join_or_start(EmbeddedSettings(home=Path(sys.argv[1])), serve=sys.argv[2:]).url)"
    )
    command = [sys.executable, "-c", script, str(home), *serve("ok")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    urls = [process.communicate(timeout=60)[0].strip() for process in both]

    assert urls[0] == urls[1] != ""
    assert len(starts(home)) == 1


def test_the_server_outlives_the_process_that_started_it(home: Path):
    script = (
        "import sys; from pathlib import Path;"
        "from mint.client.embedded import join_or_start, EmbeddedSettings;"
        "join_or_start(EmbeddedSettings(home=Path(sys.argv[1])), serve=sys.argv[2:])"
    )
    subprocess.run([sys.executable, "-c", script, str(home), *serve("ok")], check=True, timeout=60)
    embedded.join_or_start(EmbeddedSettings(home=home), serve=serve("ok"))
    assert len(starts(home)) == 1


def test_a_server_that_left_when_idle_is_started_again_with_the_same_key(home: Path):
    config = EmbeddedSettings(home=home, idle_s=1)
    first = embedded.join_or_start(config, serve=serve("ok"))
    wait_until(lambda: not local_server.is_alive(first.pid))

    second = embedded.join_or_start(config, serve=serve("ok"))

    assert second.pid != first.pid
    assert second.key == first.key
    assert len(starts(home)) == 2


def test_a_server_killed_without_a_goodbye_is_replaced(home: Path):
    config = EmbeddedSettings(home=home)
    first = embedded.join_or_start(config, serve=serve("ok"))
    os.kill(first.pid, signal.SIGKILL)
    assert local_server.recorded(home) is not None  # its record is still there

    second = embedded.join_or_start(config, serve=serve("ok"))

    assert second.pid != first.pid


def test_a_record_whose_pid_now_belongs_to_another_process_is_stale(home: Path, monkeypatch):
    monkeypatch.setattr(embedded, "CLOSING_GRACE_S", 0.3)
    data = home / "data"
    data.mkdir()
    (data / "key").write_text("sk-local")
    (data / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": os.getpid()}))
    server = embedded.join_or_start(EmbeddedSettings(home=home), serve=serve("ok"))
    assert server.pid != os.getpid()


def test_another_program_on_the_recorded_port_is_left_alone_and_never_sees_the_key(
    home: Path, service
):
    service.refuses_with = 200  # it answers everything, with something that is no health of ours
    data = home / "data"
    data.mkdir()
    (data / "key").write_text("sk-local")
    (data / "server.json").write_text(json.dumps({"url": service.url, "pid": os.getpid()}))

    server = embedded.join_or_start(EmbeddedSettings(home=home), serve=serve("ok"))

    assert server.url != service.url
    assert {asked.key for asked in service.asked} == {None}


def test_a_server_whose_engine_is_dead_is_asked_to_leave_and_replaced(home: Path):
    config = EmbeddedSettings(home=home)
    first = embedded.join_or_start(config, serve=serve("down"))
    second = embedded.join_or_start(config, serve=serve("ok"))
    assert not local_server.is_alive(first.pid)
    assert second.pid != first.pid


def test_a_server_that_refuses_the_key_file_is_named_with_what_to_do(home: Path):
    config = EmbeddedSettings(home=home)
    embedded.join_or_start(config, serve=serve("ok"))
    (home / "data" / "key").write_text("sk-other")
    with pytest.raises(ServerFaultError, match=r"refuses the key in .*data/key"):
        embedded.join_or_start(config, serve=serve("ok"))


def test_a_server_that_dies_at_start_is_reported_with_the_end_of_its_log(home: Path):
    with pytest.raises(ServerFaultError, match="exit code 3") as failure:
        embedded.join_or_start(EmbeddedSettings(home=home), serve=serve("dies"))
    assert "RuntimeError: no space left on device" in str(failure.value)
    assert "server.log" in str(failure.value)


def test_a_slow_start_shows_the_last_line_of_the_log(home: Path):
    said: list[str] = []
    embedded.join_or_start(EmbeddedSettings(home=home), serve=serve("slow"), say=said.append)
    assert said[0] == "mint: starting the local server: converting model 10 %"
    assert said[1] == "mint: starting the local server: converting model 90 %"


def test_without_the_servers_packages_the_error_says_what_to_install(home: Path, monkeypatch):
    monkeypatch.setattr(embedded, "NEEDED", ("torch", "no_such_package"))
    with pytest.raises(ConfigError, match=r'no_such_package.*"mint-rl\[embedded\]".*MINT_BASE_URL'):
        embedded.join_or_start(EmbeddedSettings(home=home))


def test_the_local_servers_own_url_needs_no_key(home: Path):
    server = embedded.join_or_start(EmbeddedSettings(home=home), serve=serve("ok"))
    config = settings.read({"MINT_HOME": str(home), "MINT_BASE_URL": server.url})
    assert connect.connect(config).api_key == "tml-sk-local"


def test_what_a_local_server_needs_is_what_the_server_extra_installs():
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        extra = tomllib.load(file)["project"]["optional-dependencies"]["server"]

    names = {re.split(r"[<>=]", requirement)[0].replace("-", "_") for requirement in extra}
    assert names == set(embedded.NEEDED)
