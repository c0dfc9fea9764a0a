"""What a figure was measured on: part of every result."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def machine() -> dict[str, object]:
    """Processor, versions, commit and date; `load_1m` far above 0 at the start says that other
    programs took part of the machine."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1m": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "peft")},
        "commit": _git("rev-parse", "--short", "HEAD")
        + ("+" if _git("status", "-s", "-uno") else ""),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((ln.partition(":")[2].strip() for ln in lines if ln.startswith("model name")), "")


def _git(*words: str) -> str:
    try:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
