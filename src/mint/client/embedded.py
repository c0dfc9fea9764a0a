"""The embedded server: one per MINT_HOME, started by the first client, shared by all, gone when
idle.

Who starts it is settled by a file lock; everybody else joins the server that `data/server.json`
names, once it has answered. A record whose process is gone, or that nobody answers, is stale.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import httpx
from filelock import FileLock, Timeout

from mint.client import local_server
from mint.client.local_server import (
    CLOSING_GRACE_S,
    LocalServer,
    check_key,
    dismiss,
    health,
    is_alive,
    recorded,
)
from mint.client.settings import EmbeddedSettings
from mint.core.errors import ConfigError, ServerFaultError

SERVE = (sys.executable, "-m", "mint.cli.main", "serve")
NEEDED = (
    "torch", "transformers", "safetensors", "fastapi", "uvicorn", "sqlalchemy", "alembic",
    "prometheus_client", "psutil", "platformdirs",
)  # fmt: skip
"""What `[server]` installs and the light client lacks."""

_ANOTHER_SERVERS = ("MINT_CONFIG", "MINT_DATABASE")
"""Variables that mean a server somebody runs on purpose; the embedded one has its own folder."""

START_TIMEOUT_S = 900.0
"""Long, for a first start may fetch or convert a model; a server that dies is noticed at once."""
ANSWER_TIMEOUT_S = 60.0
"""How long a living server may leave us without an answer, busy as it may be."""
QUIET_S = 2.0
"""Starts quicker than this need no progress line."""

Say = Callable[[str], None]

_STAMP = re.compile(r"\d\d:\d\d:\d\d\s+[A-Z]+\s+\w+:\s+")

_announced: set[str] = set()


class _Unfit(Exception):
    """The recorded server cannot be joined; a new one may be started."""


def join_or_start(
    settings: EmbeddedSettings, *, serve: Sequence[str] | None = None, say: Say | None = None
) -> LocalServer:
    """The running server of this home, started if there is none.

    Args:
        serve: the command that serves, for tests. Arguments are appended to it.
        say: takes one line for the user; stderr by default.

    Raises:
        ConfigError: the server's packages are not installed.
        ServerFaultError: it died at start or did not answer.
    """
    say = say or _to_stderr
    data = settings.home / "data"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(settings.home / "embedded.lock", say):
        server = _join(settings.home) or _start(settings, data, serve, say)
    if server.url not in _announced:
        _announced.add(server.url)
        say(f"mint: local server at {server.url} (data {server.data}; stops when idle)")
    return server


# --------------------------------------------------------------------- join


def _join(home: Path) -> LocalServer | None:
    """The recorded server if it answers; otherwise its record is removed."""
    server = recorded(home)
    if server is None:
        return None
    try:
        _wait_for_answer(server)
    except _Unfit:
        (server.data / "server.json").unlink(missing_ok=True)
        return None
    return server


def _wait_for_answer(server: LocalServer) -> None:
    """Return once the server has answered with its engine alive or coming.

    Raises:
        _Unfit: its process is gone, its port is closed or another program's, or its engine is dead
            (it is then asked to leave: nobody can do anything with it, and what is saved stays).
        ServerFaultError: it lives, and yet does not answer.
    """
    began = time.monotonic()
    while True:
        if not is_alive(server.pid):
            raise _Unfit
        waited = time.monotonic() - began
        try:
            engine = health(server)
            if engine is None:
                raise _Unfit  # another program has the port now; it must not see the key
            if engine.get("state") == "down":
                dismiss(server.pid)
                raise _Unfit
            check_key(server)
            return
        except httpx.ConnectError:
            if waited > CLOSING_GRACE_S:
                raise _Unfit from None  # the pid now belongs to somebody else
        except httpx.HTTPError as error:
            if waited > ANSWER_TIMEOUT_S:
                raise ServerFaultError(
                    f"the local server at {server.url} (pid {server.pid}) is alive, but does not "
                    f"answer ({type(error).__name__}). Its log: {server.data / 'server.log'}. If "
                    f"it stays so, end it with `kill {server.pid}` and run again."
                ) from None
        time.sleep(0.2)


# -------------------------------------------------------------------- start


def _start(
    settings: EmbeddedSettings, data: Path, serve: Sequence[str] | None, say: Say
) -> LocalServer:
    if serve is None:
        _check_installed()
        serve = SERVE
    _wait_for_last_one(data / "server.lock")
    log = data / "server.log"
    if log.exists():
        log.replace(data / "server.log.1")  # the last run's end may tell why there is a next one
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*serve, *_arguments(settings, data)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=settings.home,
            env={k: v for k, v in os.environ.items() if k not in _ANOTHER_SERVERS},
            start_new_session=True,  # our Ctrl-C is not the server's: others may be using it
        )
    local_server.children.append(process)
    try:
        return _wait_for_start(process, settings.home, log, say)
    except ServerFaultError:
        dismiss(process.pid)
        raise


def _wait_for_last_one(server_lock: Path) -> None:
    """Wait out a server that has taken its record away and is about to let go of its folder."""
    with contextlib.suppress(Timeout), FileLock(server_lock, timeout=CLOSING_GRACE_S):
        pass


def _arguments(settings: EmbeddedSettings, data: Path) -> list[str]:
    models = [part for model in settings.models for part in ("--model", model)]
    return [
        "--data", str(data), "--host", "127.0.0.1", "--port", "0", "--on-demand",
        "--exit-when-idle", str(settings.idle_s), *models,
    ]  # fmt: skip


def _check_installed() -> None:
    missing = [name for name in NEEDED if not _installed(name)]
    if missing:
        raise ConfigError(
            f"no server is configured, and a local one cannot run here: {', '.join(missing)} "
            'not installed. Run pip install "mint-rl[embedded]", or set MINT_BASE_URL and '
            "MINT_API_KEY to use a server elsewhere."
        )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _wait_for_start(
    process: subprocess.Popen[bytes], home: Path, log: Path, say: Say
) -> LocalServer:
    began = time.monotonic()
    told = ""
    while (waited := time.monotonic() - began) < START_TIMEOUT_S:
        if process.poll() is not None:
            raise ServerFaultError(
                f"the local server ended at start (exit code {process.returncode}). The end of "
                f"its log, {log}:\n{_tail(log)}"
            )
        if (server := recorded(home)) is not None:
            with contextlib.suppress(httpx.HTTPError):
                if health(server) is not None:  # no stranger on that port may see the key
                    check_key(server)
                    return server
        if waited > QUIET_S and (line := _last_line(log)) != told:
            told = line
            say(f"mint: starting the local server: {line}")
        time.sleep(0.1)
    raise ServerFaultError(
        f"the local server did not answer within {START_TIMEOUT_S:.0f} s. The end of its log, "
        f"{log}:\n{_tail(log)}"
    )


def _lines(log: Path) -> list[str]:
    """The log's non-empty lines; a progress bar's redrawings (after "\\r") count as lines."""
    try:
        text = log.read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.replace("\r", "\n").split("\n") if line.strip()]


def _last_line(log: Path) -> str:
    """What the server did last, without the time and level that its log puts before it."""
    return _STAMP.sub("", (_lines(log) or [""])[-1].strip())[:120]


def _tail(log: Path) -> str:
    return "\n".join(f"  {line[:400]}" for line in _lines(log)[-12:]) or "  (empty)"


# --------------------------------------------------------------------- misc


@contextlib.contextmanager
def _alone(path: Path, say: Say) -> Iterator[None]:
    """Hold the start lock; say so when somebody else has it for long."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=QUIET_S)
    except Timeout:
        say("mint: waiting for the local server, which another process is starting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
