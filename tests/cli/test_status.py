import json
import time

import pytest
from click.testing import CliRunner

from mint.cli.main import main
from mint.testing import local_service


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with local_service(tmp_path_factory.mktemp("status")) as running:
        yield running


def shown(environment: dict[str, str], *arguments: str):
    return CliRunner().invoke(main, ["status", *arguments], env=environment)


def test_status_shows_engine_memory_sessions_and_models(service):
    environment = {"MINT_BASE_URL": service.url, "MINT_API_KEY": service.key}
    while "none loaded" in (text := shown(environment).output):
        time.sleep(0.1)  # the one model of a server is loaded once it is up

    assert text.startswith("engine up: idle\n  computes on cpu in float32, 1 CPU thread\n  memory ")
    assert "base models: tiny; 0 adapters" in text
    assert "\nno session\n\nno model\n\nno line in the queue\n" in text
    told = json.loads(shown(environment, "--json").output)
    assert (told["sees"], told["queue"], told["engine"]["state"]) == ("all", [], "up")


def test_status_says_what_is_wrong_in_one_line(service, tmp_path):
    refused = shown({"MINT_BASE_URL": service.url, "MINT_API_KEY": "sk-unknown"})
    assert (refused.exit_code, refused.stderr.strip()) == (
        1, f"Error: {service.url} refuses the API key.",
    )  # fmt: skip
    nobody = shown({"MINT_BASE_URL": "http://127.0.0.1:9", "MINT_API_KEY": "sk-x"})
    assert "no server answers at http://127.0.0.1:9" in nobody.stderr


def test_status_starts_no_server(tmp_path):
    refused = shown({"MINT_HOME": str(tmp_path), "MINT_BASE_URL": "", "MINT_API_KEY": ""})

    assert refused.exit_code == 1
    assert "no embedded one runs" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_words_of_others_do_not_reach_the_terminal_as_they_are():
    from mint.cli.status import _part

    evil = {"owner": "eve\x1b[2J"}
    assert "eve?[2J" in "\n".join(_part("session", [evil], ("OWNER",), lambda one: (one["owner"],)))
