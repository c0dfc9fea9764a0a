"""What holds for every layout of keys and values is tested in each."""

import pytest
from tests.torch_engine.sampling import harness


@pytest.fixture(params=["contiguous", "paged"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where decodings of the harness put keys and values."""
    monkeypatch.setattr(harness, "layout", request.param)
    return request.param
