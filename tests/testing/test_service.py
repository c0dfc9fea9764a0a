from pathlib import Path

import httpx
import pytest

from mint.client.connect import Connection, check
from mint.testing import local_service


def test_a_local_service_serves_its_model_and_is_gone_with_the_block():
    with local_service(model="acme/base") as service:
        assert check(Connection(service.url, service.key)) == ("acme/base",)
        folder = service.data.parent
        assert service.environment(MINT_API_KEY="other")["MINT_API_KEY"] == "other"

    assert not folder.exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service.url}/healthz")


def test_a_service_that_does_not_start_says_why(tmp_path: Path):
    with (
        pytest.raises(RuntimeError, match="dtype='float33': give one of"),
        local_service(tmp_path, options=("--dtype", "float33")),
    ):
        pass
