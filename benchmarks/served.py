"""`mint serve` as a process of its own, and the CPU time it takes."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from mint.testing.service import wait_until_serving, without_settings


@dataclass(frozen=True)
class Served:
    """A running server: the API process, and the engine process below it."""

    url: str
    key: str
    model: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """CPU seconds of the server's processes up to now, in steps of 10 ms."""
        return sum(
            sum(one.cpu_times()[:2])
            for one in (self.process, *self.process.children(recursive=True))
        )

    def cpu_with_client_s(self) -> float:
        """The same, and those of this process, which is the client."""
        return self.cpu_s() + sum(os.times()[:2])


def with_own_server(home: Path, threads: int) -> dict[str, str]:
    """This environment for scripts whose server starts by itself: without the settings and the local
    server of whoever runs this, and gone soon after the last script."""
    return {
        **without_settings(os.environ),
        "MINT_HOME": str(home),
        "MINT_EMBEDDED_IDLE_S": "20",
        "OMP_NUM_THREADS": str(threads),
    }


@contextmanager
def served(model: str, *, threads: int, dtype: str = "float32") -> Iterator[Served]:
    """A server on the CPU until the block ends.

    Args:
        model: NAME or NAME=FOLDER.

    Raises:
        RuntimeError: it did not start; the message has its log.
    """
    with tempfile.TemporaryDirectory(prefix="mint-bench-") as temporary:
        folder = Path(temporary)
        data, log = folder / "data", folder / "server.log"
        os.environ["MINT_HOME"] = str(folder / "home")  # the client's, too
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mint.cli.main", "serve", "--port", "0"),
                    *("--data", str(data), "--model", model, "--device", "cpu"),
                    *("--dtype", dtype, "--threads", str(threads)),
                ],
                env={**without_settings(os.environ), "MINT_HOME": str(folder / "home")},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            url = wait_until_serving(process, data, log)
            key = (data / "key").read_text().strip()
            yield Served(url, key, model.partition("=")[0], psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(60)
