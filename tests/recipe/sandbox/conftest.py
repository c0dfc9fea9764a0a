"""A sandbox of each backend; tests that need bubblewrap have its mark and run by `make test-sandbox`."""

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from mint.recipe.sandbox import Sandbox, SandboxError, WeakIsolationWarning

BACKENDS = (pytest.param("bubblewrap", marks=pytest.mark.bubblewrap), "subprocess")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made meanwhile. Open to all, as /tmp is: programs may run as another
    user than ours."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.fixture(scope="session", params=BACKENDS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Shared by all tests, so each also shows that the attacks before it left nothing behind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakIsolationWarning)
        try:
            made = Sandbox(request.param, max_running=4)
        except SandboxError as error:
            pytest.skip(str(error))
    with made:
        yield made
