"""Entry of the engine process: `python -m mint.server.worker.main MODULE`, its settings as JSON on
stdin. MODULE builds the engine, and is imported while the settings may still be to come.

The API process starts it. It takes the data folder's lock, listens, builds the engine, recovers
what an earlier one left, and works until it is told to stop or its API process stays away.
"""

import importlib
import logging
import os
import signal
import sys
from dataclasses import asdict

from filelock import FileLock, Timeout

from mint.core.errors import ConfigError, MintError
from mint.engine.protocol import Doing, Engine, OnProgress
from mint.server.channel.health import EnginePhase
from mint.server.channel.listener import Listener
from mint.server.channel.messages import Cancel, Message, Stop, Wake
from mint.server.channel.spawn import CANNOT_START
from mint.server.logs import set_up_logs
from mint.server.scheduler.plan import Limits
from mint.server.settings import ServerSettings
from mint.server.store.store import Store
from mint.server.worker.loop import Worker, remove_leftovers
from mint.server.worker.recovery import recover
from mint.server.worker.signals import Signals

_log = logging.getLogger(__name__)

_LOCK_TIMEOUT_S = 30.0
"""An engine process that is being replaced has this long to leave."""
_DATABASE_TIMEOUT_S = 5.0
"""Until a database has noticed the end of the engine process before us."""
_FAREWELL_S = 5.0
"""How long a process that cannot start waits for an API process to tell it why."""


def main() -> int:
    for module in sys.argv[1:]:  # before there is anything to do, since torch takes seconds
        importlib.import_module(module)
    if not (told := sys.stdin.read()):
        return 0  # we were not needed, or our API process died
    settings = ServerSettings.from_json(told)
    set_up_logs(settings.log_format, "engine")
    signals = Signals()
    signal.signal(signal.SIGTERM, lambda *_: signals.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the API process tells us when to stop
    try:
        with FileLock(settings.data / "engine.lock", timeout=_LOCK_TIMEOUT_S):
            return _run(settings, signals)
    except Timeout:
        _log.error("another engine process works on %s; only one at a time may", settings.data)
        return CANNOT_START


def _run(settings: ServerSettings, signals: Signals) -> int:
    listener = Listener(
        settings.data, settings.engine_fingerprint(), lambda message: _told(signals, message)
    )
    listener.start()
    try:
        store = Store(settings.store_at)
        with store.only_engine(_DATABASE_TIMEOUT_S) as alone:
            if not alone:
                raise ConfigError(
                    f"another engine process works on the database {settings.shown_database}, from "
                    "another data folder. A database serves one data folder."
                )
            return _work(settings, signals, listener, store)
    except MintError as error:
        return _cannot_start(listener, str(error))
    finally:
        listener.close()


def _work(settings: ServerSettings, signals: Signals, listener: Listener, store: Store) -> int:
    """Take up what an earlier engine process left, and work."""
    listener.ended(recover(store, "the server was restarted"))
    remove_leftovers(store, settings.data)
    listener.state(EnginePhase.STARTING, "finding the models")
    engine = _build(settings, _progress_to(listener))
    store.set_served(engine.served())
    _log.info("serving %s", ", ".join(model.name for model in engine.served()) or "on demand")
    listener.state(EnginePhase.UP, "idle", asdict(engine.capacity()))
    engine.preload()
    Worker(
        store=store,
        engine=engine,
        data=settings.data,
        signals=signals,
        reports=listener,
        limits=Limits(samples=settings.max_sequences),
        leave_when=lambda: _is_orphan(listener, settings),
    ).run()
    engine.close()
    _log.info("stopped")
    return 0


def _progress_to(listener: Listener) -> OnProgress:
    def tell(doing: Doing | None) -> None:
        if doing is None:
            listener.doing(None)
        else:
            listener.doing(doing.what, doing.share)

    return tell


def _build(settings: ServerSettings, on_progress: OnProgress) -> Engine:
    module, _, name = settings.engine.partition(":")
    return getattr(importlib.import_module(module), name)(settings, on_progress)


def _told(signals: Signals, message: Message) -> None:
    match message:
        case Wake():
            signals.wake()
        case Cancel(operation_id):
            signals.cancel(operation_id)
        case Stop():
            signals.stop()
        case _:
            _log.warning("unexpected message from the API process: %s", message)


def _cannot_start(listener: Listener, why: str) -> int:
    _log.error("cannot start: %s", why)
    listener.state(EnginePhase.DOWN, why)
    listener.wait_connected(_FAREWELL_S)
    return CANNOT_START


def _is_orphan(listener: Listener, settings: ServerSettings) -> bool:
    """Whether no API process has been there for too long; asked while there is nothing to do."""
    lonely_s = listener.lonely_for_s()
    if lonely_s < settings.orphan_timeout_s:
        return False
    _log.warning(
        "no API process for %.0f s: leaving, and the live adapters with me (process %d)",
        lonely_s, os.getpid(),
    )  # fmt: skip
    return True


if __name__ == "__main__":
    sys.exit(main())
