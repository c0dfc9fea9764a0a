"""The server as a process: the API in this one, the engine in its own, both on one data folder."""

import asyncio
import logging
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from filelock import FileLock, Timeout

from mint.core.errors import ConfigError, ServerFaultError
from mint.server.app import create_app
from mint.server.auth.local import local_key
from mint.server.channel import EngineHealth, EngineLink, EnginePhase
from mint.server.idle import leave_when_idle
from mint.server.logs import set_up_logs
from mint.server.presence import banner, server_file, write_presence
from mint.server.settings import ServerSettings
from mint.server.store.store import Store
from mint.server.worker.recovery import fail_all, recover

_log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75
"""Of an idle connection; clients poll and beat more often than that."""
_BACKLOG = 2048
_SHUTDOWN_S = 3
"""For answers that are being written when the server leaves. Those who wait are let go at once."""


def serve(settings: ServerSettings) -> None:
    """Run the server until a signal, until it has been idle for long enough, or until it fails.

    Raises:
        ConfigError: these settings cannot be served here; the text says what to change.
        ServerFaultError: the engine process does not start.
    """
    set_up_logs(settings.log_format, "api")
    _allow_many_connections()
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _only_server(settings.data):
        store = Store(settings.store_at)
        check_binding(settings, store)
        key_file = local_key(store, settings.data) if settings.is_loopback else None
        listening = _listen(settings)
        try:
            asyncio.run(_Server(settings, store, listening, key_file).run())
        finally:
            listening.close()
            server_file(settings.data).unlink(missing_ok=True)
            store.close()


def check_binding(settings: ServerSettings, store: Store) -> None:
    """Refuse an address that others can reach while nobody has been given a key.

    Raises:
        ConfigError: it says how to make a key.
    """
    if settings.is_loopback or any(key.revoked_at is None for key in store.list_keys()):
        return
    raise ConfigError(
        f"host={settings.host!r} can be reached from other machines, but no API key exists yet. "
        f"Make one first: mint keys create NAME --data {settings.data}"
    )


class _Server:
    """One run of the API process."""

    def __init__(
        self,
        settings: ServerSettings,
        store: Store,
        listening: socket.socket,
        key_file: Path | None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._listening = listening
        self._key_file = key_file
        self._announced = False

    async def run(self) -> None:
        self._link = EngineLink(
            self._settings,
            on_lost=partial(recover, self._store),
            on_down=partial(fail_all, self._store),
        )
        app = create_app(self._settings, self._store, self._link)
        self._http = _Http(
            uvicorn.Config(
                app,
                log_config=None,  # set_up_logs has decided
                access_log=False,  # paths and queries may hold what does not belong into a log
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_SHUTDOWN_S,
                backlog=_BACKLOG,
            )
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._leave, f"signal {number.name}")
        await self._link.start()
        opening = asyncio.create_task(self._open(app))
        try:
            await self._http.serve(sockets=[self._listening])
        finally:
            opening.cancel()
            await self._link.close()
        if self._link.health().state is EnginePhase.DOWN and not self._announced:
            raise ServerFaultError(self._link.health().detail)

    async def _open(self, app: FastAPI) -> None:
        """Tell that the server is there, once it accepts requests and knows its models; from then
        on, watch whether anybody needs it."""
        health = await self._link.settled()
        if health.state is EnginePhase.DOWN:
            self._leave("the engine process did not start")
            return
        await self._http.accepting.wait()
        self._announce(health)
        if self._settings.exit_when_idle_s is not None:
            await leave_when_idle(
                app, self._store, self._settings.exit_when_idle_s, partial(self._leave, "idle")
            )

    def _announce(self, health: EngineHealth) -> None:
        host, port = self._listening.getsockname()[:2]
        url = write_presence(self._settings.data, host, port)
        self._announced = True
        lines = banner(self._settings, url, self._store.served(), self._key_file, health)
        print("\n".join(lines), flush=True)

    def _leave(self, why: str) -> None:
        if self._http.should_exit:
            return
        _log.info("leaving: %s", why)
        self._http.should_exit = True
        self._link.let_go()


class _Http(uvicorn.Server):
    """uvicorn, telling when it accepts requests and leaving signals to us."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: uvicorn would raise a signal again when it is done, before we are."""
        yield


def _allow_many_connections() -> None:
    """Take all the open files we may have: each client that waits holds a connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems name a hard limit that they then refuse; the soft one stays.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _only_server(data: Path) -> Iterator[None]:
    lock = FileLock(data / "server.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"another server runs on {data} (see {server_file(data)}). Stop it, or give this one "
            "another --data folder."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _listen(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}. "
            "Give another --port, or 0 for any free one."
        ) from error
