"""Starting a real server: `mint serve` on a tiny random model, in a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mint.torch_engine.models.tiny import build_tiny

MODEL = "tiny/llama"
START_TIMEOUT_S = 120


@dataclass(frozen=True)
class RunningServer:
    url: str
    key: str
    data: Path
    """The server's data folder."""


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[RunningServer]:
    """A server with its data below `folder`, stopped at the end."""
    model = build_tiny(folder / "model")
    data = folder / "data"
    log = (folder / "server.log").open("w")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "mint.cli.main", "serve", "--port", "0", "--data", str(data)),
            *("--model", f"{MODEL}={model}", "--device", "cpu", "--threads", "1", *options),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        told = _wait_until_serving(data / "server.json", process, Path(log.name))
        yield RunningServer(told["url"], (data / "key").read_text().strip(), data)
    finally:
        process.terminate()
        process.wait(timeout=60)
        log.close()


def _wait_until_serving(file: Path, process: subprocess.Popen[bytes], log: Path) -> dict[str, str]:
    end = time.monotonic() + START_TIMEOUT_S
    while not file.exists():
        assert process.poll() is None, f"the server left:\n{log.read_text()}"
        assert time.monotonic() < end, f"the server does not start:\n{log.read_text()}"
        time.sleep(0.1)
    return json.loads(file.read_text())
