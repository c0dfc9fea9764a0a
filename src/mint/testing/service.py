"""A real server for as long as a block lasts: for tests, docs and workshops."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mint.testing.models import tiny_model

START_TIMEOUT_S = 120.0
"""For importing torch and transformers, which takes seconds, on a machine that does other things."""
STOP_TIMEOUT_S = 60.0
"""More than the server gives its engine process to leave."""


@dataclass(frozen=True)
class LocalService:
    """A running `mint serve`."""

    url: str
    key: str
    model: str
    """The base model it offers."""
    data: Path
    """The server's data folder."""
    home: Path
    """MINT_HOME for its clients, so that nothing is left in the user's own."""

    def environment(self, **more: str) -> dict[str, str]:
        """An environment for a client process: this server, and no other setting of ours."""
        return {
            **without_settings(os.environ),
            "MINT_BASE_URL": self.url,
            "MINT_API_KEY": self.key,
            "MINT_HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            **more,
        }


@contextmanager
def local_service(
    folder: Path | None = None, *, model: str = "tiny", options: tuple[str, ...] = ()
) -> Iterator[LocalService]:
    """Run `mint serve` in a process of its own until the block ends.

        with local_service() as service:
            client = mint.ServiceClient(base_url=service.url, api_key=service.key)
            client.create_lora_training_client(service.model).result()

    It needs no network and no GPU: the base model is a tiny random one, so what it says means
    nothing, and everything else is as on a real server.

    Args:
        folder: for its data and its log, `server.log`, kept afterwards. None: a temporary one.
        model: the name clients ask for.
        options: more arguments of `mint serve`.

    Raises:
        RuntimeError: it did not start; the message has its log.
    """
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mint-")))
        data, home, log = folder / "data", folder / "home", folder / "server.log"
        tiny = tiny_model(folder / "models", "tiny")
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mint.cli.main", "serve"),
                    *("--port", "0", "--data", str(data), "--model", f"{model}={tiny.folder}"),
                    *("--device", "cpu", "--threads", "1", *options),
                ],
                env={**without_settings(os.environ), "MINT_HOME": str(home)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        stack.callback(_stop, process)
        url = wait_until_serving(process, data, log)
        yield LocalService(url, (data / "key").read_text().strip(), model, data, home)


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` less every MINT_ and TINKER_ variable."""
    return {k: v for k, v in environment.items() if not k.startswith(("MINT_", "TINKER_"))}


def wait_until_serving(process: subprocess.Popen[bytes], data: Path, log: Path) -> str:
    """The URL of a server, once it accepts requests and knows its models.

    Raises:
        RuntimeError: it ended, or START_TIMEOUT_S is over; the message has its log.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        for name in ("server.json", f"server-{process.pid}.json"):  # one beside another's
            with suppress(FileNotFoundError):
                record = json.loads((data / name).read_text())
                if record["pid"] == process.pid:  # not one that an earlier server left
                    return record["url"]
        time.sleep(0.05)
    raise RuntimeError(
        f"the server does not start (exit status {process.poll()}):\n{log.read_text()}"
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
