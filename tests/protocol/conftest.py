"""One real server and one official client for all protocol tests."""

import os
from collections.abc import Iterator

import pytest
import tinker

from mint.client.settings import EMBEDDED_MODEL
from mint.testing import LocalService

MODEL = EMBEDDED_MODEL
"""A tiny model of that name."""


@pytest.fixture(scope="session")
def server(shared_service: LocalService) -> LocalService:
    return shared_service


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
