"""One question to a server before anything long begins."""

from collections.abc import Callable

import pytest

import mint
from mint.client.connect import Connection, check
from mint.core.errors import AuthenticationError, ServerFaultError


def test_a_server_tells_its_models(service):
    assert check(Connection(service.url, "tml-sk-x")) == ("acme/tiny",)


def test_a_server_that_is_not_there_is_named_at_once():
    with pytest.raises(ServerFaultError, match=r"no server answers at http://127\.0\.0\.1:9"):
        check(Connection("http://127.0.0.1:9", "tml-sk-x"))


def test_a_refused_key_names_its_variable(service):
    service.refuses_with = 401
    with pytest.raises(AuthenticationError, match="MINT_API_KEY"):
        check(Connection(service.url, "tml-sk-x"))


def test_a_server_of_another_kind_is_recognised(service):
    service.refuses_with = 404
    with pytest.raises(ServerFaultError, match=r"answered 404.*ends before /api/v1"):
        check(Connection(service.url, "tml-sk-x"))


def test_a_connection_does_not_show_its_key():
    assert "secret" not in repr(Connection("http://h", "tml-sk-secret"))


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore:DEPRECATED:FutureWarning")
@pytest.mark.parametrize(
    "ask",
    [
        lambda service: service.create_lora_training_client(base_model="acme/tiny", rank=4),
        lambda service: service.get_server_capabilities(),
    ],
    ids=["with a session", "without"],
)
def test_a_script_hears_within_seconds_that_nobody_answers(
    ask: Callable[[mint.ServiceClient], object],
):
    service = mint.ServiceClient(base_url="http://127.0.0.1:9", api_key="sk-x")
    with pytest.raises(ServerFaultError, match=r"no server answers at http://127\.0\.0\.1:9"):
        ask(service)
