"""The server as a process: the API in this one, the engine in its own, both on one data folder."""

import asyncio
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from filelock import FileLock, Timeout

from mint.core.errors import ConfigError, ServerFaultError
from mint.core.ids import OperationId
from mint.server.app import create_app
from mint.server.auth.local import local_key
from mint.server.channel import EngineHealth, EngineLink, EnginePhase
from mint.server.channel.spawn import SpareEngine
from mint.server.idle import leave_when_idle
from mint.server.logs import set_up_logs
from mint.server.presence import another_server_file, banner, server_file, write_presence
from mint.server.settings import ServerSettings
from mint.server.store.store import Store
from mint.server.worker.recovery import fail_all, recover

_log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75
"""Of an idle connection; clients poll and beat more often than that."""
_BACKLOG = 2048
_LOST_NOTICE_S = 5.0
"""Until a database has noticed the end of a process that was connected to it."""
_SHUTDOWN_S = 3
"""For answers that are being written when the server leaves. Those who wait are let go at once."""


def serve(settings: ServerSettings, spare: SpareEngine | None = None) -> None:
    """Run the server until a signal, until it has been idle for long enough, or until it fails.

    Args:
        spare: an engine process that waits for its settings; it has gone or works when this
            returns.

    Raises:
        ConfigError: these settings cannot be served here; the text says what to change.
        ServerFaultError: the engine process does not start.
    """
    set_up_logs(settings.log_format, "api")
    _allow_many_connections()
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _server_lock(settings) as first:
        store = Store(settings.store_at)
        check_binding(settings, store)
        key_file = local_key(store, settings.data) if settings.is_loopback else None
        listening = _listen(settings)
        record = server_file(settings.data) if first else another_server_file(settings.data)
        try:
            asyncio.run(_Server(settings, store, listening, key_file, record, spare).run())
        finally:
            listening.close()
            record.unlink(missing_ok=True)
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
        record: Path,
        spare: SpareEngine | None,
    ) -> None:
        self._settings = settings
        self._spare = spare
        self._store = store
        self._listening = listening
        self._key_file = key_file
        self._record = record
        self._announced = False

    async def run(self) -> None:
        self._link = EngineLink(
            self._settings,
            on_lost=partial(_end_if_alone, self._store, recover),
            on_down=partial(_end_if_alone, self._store, fail_all),
            spare=self._spare,
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
        unfit = self._settings.is_shared or not self._announced
        if self._link.health().state is EnginePhase.DOWN and unfit:
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
        async with asyncio.TaskGroup() as watching:
            if self._settings.exit_when_idle_s is not None:
                leave = partial(self._leave, "idle")
                limit_s = self._settings.exit_when_idle_s
                watching.create_task(leave_when_idle(app, self._store, limit_s, leave))
            if self._settings.is_shared:
                watching.create_task(self._leave_when_down())

    async def _leave_when_down(self) -> None:
        """Make room for an API process that may fare better, rather than fail what others queue."""
        health = await self._link.down()
        self._leave(health.detail)

    def _announce(self, health: EngineHealth) -> None:
        host, port = self._listening.getsockname()[:2]
        url = write_presence(self._record, host, port)
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
def _server_lock(settings: ServerSettings) -> Iterator[bool]:
    """Hold the data folder's lock. False: another server has it, and its store can be shared.

    Raises:
        ConfigError: another server has it, and with SQLite a folder serves one.
    """
    lock = FileLock(settings.data / "server.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        if settings.is_shared:
            yield False
            return
        raise ConfigError(
            f"another server runs on {settings.data} (see {server_file(settings.data)}). Stop it, "
            "or give this one another --data folder; several may share one with a PostgreSQL "
            "(--database)."
        ) from None
    try:
        yield True
    finally:
        lock.release()


def _end_if_alone(
    store: Store, end: Callable[[Store, str], list[OperationId]], what: str
) -> list[OperationId]:
    """End operations for the lack of an engine process, unless one works on this database."""
    with store.only_engine(_LOST_NOTICE_S) as alone:
        return end(store, what) if alone else []


def _listen(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}. "
            "Give another --port, or 0 for any free one."
        ) from error
