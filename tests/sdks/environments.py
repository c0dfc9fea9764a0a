"""One environment per SDK version, below build/sdks, from pinned requirement files.

An environment is made once and again only when its requirement file changes. torch, which is large,
is in none of them: a folder of links to that of our own environment stands in, and is on the path
only of what imports torch. A path to our whole environment would do as well but for its other
packages: SDKs look for optional ones, and would find ours.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "sdks"
TORCH = BUILD / "torch"

NEEDS_TORCH = {"0.6.0"}
"""Versions that cannot be imported without torch."""


@dataclass(frozen=True)
class Environment:
    """A Python with one version of the SDK."""

    version: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def versions() -> list[str]:
    """The SDK versions there is a requirement file for, oldest first."""
    return sorted((path.stem for path in HERE.glob("requirements/*.txt")), key=Version)


def set_up(wanted: list[str]) -> list[Environment]:
    """Make the environments that are missing or out of date."""
    _link_torch()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as at_once:
        return list(at_once.map(_environment, wanted))


def _environment(version: str) -> Environment:
    requirements = HERE / "requirements" / f"{version}.txt"
    made = Environment(version, BUILD / version)
    stamp = made.folder / ".ready"
    state = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == state:
        return made
    print(f"setting up tinker {version}", flush=True)
    shutil.rmtree(made.folder, ignore_errors=True)
    venv = [sys.executable, "-m", "venv", "--without-pip", str(made.folder)]
    subprocess.run(venv, check=True)
    # The file names everything, so there is nothing to resolve.
    pip = [sys.executable, "-m", "pip", "--python", str(made.python)]
    quiet = ["--quiet", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *quiet, "--no-deps", "-r", str(requirements)], check=True)
    stamp.write_text(state)
    return made


def _link_torch() -> None:
    """A folder from which our own torch can be imported, with what it needs that no SDK brings."""
    shutil.rmtree(TORCH, ignore_errors=True)
    TORCH.mkdir(parents=True)
    brought = _pinned()
    for name in _needed("torch"):
        if name in brought:
            continue
        found = distribution(name)
        for top in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            (TORCH / top).symlink_to(Path(str(found.locate_file(top))))


def _pinned() -> set[str]:
    """The packages that every requirement file pins."""
    files = [
        {
            canonicalize_name(line.partition("==")[0])
            for line in path.read_text().splitlines()
            if not line.startswith("#")
        }
        for path in HERE.glob("requirements/*.txt")
    ]
    return set.intersection(*files)


def _needed(name: str) -> Iterator[str]:
    """An installed package and all it needs, each once."""
    seen, waiting = set[str](), [canonicalize_name(name)]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            asked = [Requirement(text) for text in distribution(name).requires or ()]
        except PackageNotFoundError:
            continue  # for another platform or Python
        yield name
        waiting += [
            canonicalize_name(each.name)
            for each in asked
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
