"""The loop gives the same numbers with the oldest SDK that recipes support as with the newest."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from tests.sdks.environments import BUILD, ROOT, set_up

from mint.testing import LocalService, local_service

OLDEST = "0.22.0"
BROUGHT = ("chz", "zstandard", "python-dotenv", "jinja2", "markupsafe")
"""What mint needs and that SDK does not bring: linked from our own environment."""


def linked() -> Path:
    folder = BUILD / "recipes"
    folder.mkdir(parents=True, exist_ok=True)
    for name in BROUGHT:
        found = distribution(name)
        for top in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            link = folder / top
            link.unlink(missing_ok=True)
            link.symlink_to(Path(str(found.locate_file(top))))
    return folder


def run(python: Path | str, folder: Path, server: LocalService, *extra: Path) -> dict[str, Any]:
    done = subprocess.run(
        [
            str(python), "-m", "tests.recipe.sdk_run", str(folder), server.url, server.key,
            server.model,
        ],
        env={
            "PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT, *extra))),
        },
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # and nothing else is printed


def comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the real server without what a new adapter draws, or a warm cache changes."""
    drawn = ("grad_norm", "cached", "parity", "gap")
    return {key: value for key, value in row.items() if not any(word in key for word in drawn)}


@pytest.mark.slow
def test_both_sdks_give_the_same_metrics(tmp_path: Path):
    """Trap 25."""
    [old] = set_up([OLDEST])
    with local_service(tmp_path / "server") as server:
        newest = run(sys.executable, tmp_path / "newest", server)
        oldest = run(old.python, tmp_path / "oldest", server, linked())

    assert oldest["sdk"] == OLDEST
    assert newest["sdk"].startswith("0.38.")
    assert len(newest["fake"]) == 3
    assert oldest["fake"] == newest["fake"]
    [one], [other] = newest["server"], oldest["server"]
    assert comparable(other) == pytest.approx(comparable(one), abs=1e-4)
