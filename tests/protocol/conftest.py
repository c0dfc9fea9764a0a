"""One real server and one official client for all protocol tests."""

import os
from collections.abc import Iterator

import pytest
import tinker

from mint.testing import LocalService, local_service

MODEL = "tiny/llama"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with local_service(tmp_path_factory.mktemp("protocol"), model=MODEL) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: LocalService) -> Iterator[tinker.ServiceClient]:
    """The official client, given only URL and key; upstream wants a key to begin with tml-."""
    os.environ["TINKER_TELEMETRY"] = "0"
    service = tinker.ServiceClient(base_url=server.url, api_key=f"tml-{server.key}")
    yield service
    service.close("success")


@pytest.fixture(scope="session")
def rest(server: LocalService) -> tinker.RestClient:
    return tinker.RestClient(base_url=server.url, api_key=f"tml-{server.key}")
