from collections.abc import Iterator

import pytest

from mint.client.settings import EMBEDDED_MODEL
from mint.testing import LocalService, local_service


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """A server whose tiny model has the name that pages and quickstart use."""
    with local_service(tmp_path_factory.mktemp("docs-service"), model=EMBEDDED_MODEL) as running:
        yield running
