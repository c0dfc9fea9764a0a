"""A real server in processes of its own, for pages and scripts that need one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mint.testing.models import tiny_model

ROOT = Path(__file__).resolve().parents[2]
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The name that README and docs use; here it is a tiny random model."""


@dataclass(frozen=True)
class Service:
    """A running `mint serve`."""

    url: str
    key: str
    home: Path
    """MINT_HOME of its clients, so that nothing is left in the user's own."""

    def environment(self, **more: str) -> Mapping[str, str]:
        """An environment for a client process: this server, and no other setting of ours."""
        return {
            **without_settings(os.environ),
            "MINT_BASE_URL": self.url,
            "MINT_API_KEY": self.key,
            "MINT_HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            **more,
        }


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` less every MINT_ and TINKER_ variable."""
    return {k: v for k, v in environment.items() if not k.startswith(("MINT_", "TINKER_"))}


@contextmanager
def serve(folder: Path) -> Iterator[Service]:
    """Run `mint serve` on a tiny model below `folder` until the block ends."""
    tiny = tiny_model(folder / "models", "tiny")
    data, home = folder / "data", folder / "home"
    environment = {**without_settings(os.environ), "MINT_HOME": str(home), "OMP_NUM_THREADS": "1"}
    mint = [sys.executable, "-m", "mint.cli.main"]
    key = subprocess.run(
        [*mint, "keys", "create", "docs", "--data", str(data)],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    command = [*mint, "serve", "--port", "0", "--data", str(data)]
    with (folder / "server.log").open("w+") as log:
        server = subprocess.Popen(
            [*command, "--model", f"{MODEL}={tiny.folder}", "--threads", "1"],
            env=environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            yield Service(_url(server, data, folder / "server.log"), key, home)
        finally:
            server.terminate()
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _url(server: subprocess.Popen[bytes], data: Path, log: Path, patience_s: float = 90) -> str:
    """The URL of the server, once it accepts requests."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and server.poll() is None:
        try:
            return json.loads((data / "server.json").read_text())["url"]
        except (FileNotFoundError, ValueError):
            time.sleep(0.1)
    raise RuntimeError(f"mint serve did not start (exit code {server.poll()}):\n{log.read_text()}")
