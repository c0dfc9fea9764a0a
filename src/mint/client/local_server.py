"""A local server as a neighbour sees it: its record, its process, its answers."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from mint.client.settings import wire_key
from mint.core.errors import ServerFaultError

CLOSING_GRACE_S = 5.0
"""A server on its way out closes its port before its record and its process are gone."""

children: list[subprocess.Popen[bytes]] = []
"""Servers this process started. Polled, or a dead one would stay a zombie that looks alive."""


@dataclass(frozen=True)
class LocalServer:
    """A local server as its record tells."""

    url: str
    pid: int
    key: str = field(repr=False)
    data: Path


def recorded(home: Path) -> LocalServer | None:
    """The server that `home/data/server.json` names, whether it lives or not."""
    data = home / "data"
    try:
        record = json.loads((data / "server.json").read_text())
        key = (data / "key").read_text().strip()
        return LocalServer(str(record["url"]).rstrip("/"), int(record["pid"]), key, data)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def running(home: Path) -> LocalServer | None:
    """The recorded server, if its process lives."""
    server = recorded(home)
    return server if server is not None and is_alive(server.pid) else None


def health(server: LocalServer) -> Mapping[str, Any] | None:
    """What `/healthz` tells about the engine; None if whoever answers there is no server of ours.

    Raises:
        httpx.HTTPError: no answer, or one that says no.
    """
    answer = httpx.get(f"{server.url}/healthz", timeout=10, trust_env=False)
    answer.raise_for_status()
    try:
        engine = answer.json()["engine"]
    except (ValueError, KeyError, TypeError):
        return None
    return engine if isinstance(engine, dict) else None


def check_key(server: LocalServer) -> None:
    """Ask something that needs the key: it is the right one, and the idle clock starts anew."""
    answer = httpx.get(
        f"{server.url}/api/v1/mint/server",
        headers={"X-API-Key": wire_key(server.key)},
        timeout=10,
        trust_env=False,  # a proxy has no business between us and our own machine
    )
    if answer.status_code in (401, 403):
        raise ServerFaultError(
            f"the local server at {server.url} refuses the key in {server.data / 'key'}. The file "
            "and the server's database no longer belong together: stop the server, then restore "
            "the key or move the data folder away."
        )
    answer.raise_for_status()


def is_alive(pid: int) -> bool:
    for child in list(children):
        if child.poll() is not None:
            children.remove(child)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def dismiss(pid: int) -> None:
    """Ask a server to leave, and wait until it has."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 2 * CLOSING_GRACE_S
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.1)
