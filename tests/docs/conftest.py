from collections.abc import Iterator

import pytest
from tests.docs.service import Service, serve


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(tmp_path_factory.mktemp("docs-service")) as running:
        yield running
