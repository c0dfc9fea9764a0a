"""What tests of several rooms share."""

from collections.abc import Iterator

import pytest
from tests import postgres as servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[servers.Postgres]:
    """A PostgreSQL server for this test run; a test that asks for it also has the mark `postgres`."""
    if reason := servers.missing():
        pytest.skip(reason)
    with servers.serve() as running:
        yield running
