"""EngineLink: the API process's end. Keeps an engine process there, and wakes those who wait."""

import asyncio
import logging
import signal
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress

from mint.core.ids import OperationId
from mint.server.channel.connection import Connection, connect
from mint.server.channel.engine_process import REPLACE_GRACE_S, Respawns, RunningEngine
from mint.server.channel.health import Doing, EngineHealth, EnginePhase
from mint.server.channel.keeping import Keeping
from mint.server.channel.messages import (
    ENDED_PER_LINE,
    Cancel,
    Ended,
    Message,
    State,
    Stay,
    Stop,
    Wake,
    Welcome,
)
from mint.server.channel.spawn import SpareEngine
from mint.server.settings import ServerSettings

_log = logging.getLogger(__name__)

_END_AGAIN_S = 5.0
"""Between two tries to end what an engine process cannot, when the store refuses."""
_REMEMBERED = 50_000
"""Endings kept for those who begin to wait a moment too late."""
_STOP_GRACE_S = 30.0
"""An engine finishes its slice before it leaves; a training slice on a CPU takes seconds."""
_LOOK_AGAIN_S = 0.1
"""For the keeper's engine process, while there is none."""
_ASPIRE_EVERY_S = 1.0
"""How often a process that is not the keeper looks whether there is one."""

OnLost = Callable[[str], Iterable[OperationId]]
"""Told in words what happened; ends the operations that cannot go on and returns them. Runs in a
thread."""


def _nothing_ends(_what: str) -> Iterable[OperationId]:
    return ()


class _OtherSettingsError(Exception):
    """The folder's engine process does what another API process was told."""


class EngineLink:
    """Spawns or joins the engine process of a data folder and talks with it. One event loop.

    Several API processes may share the folder, if their store allows it. One of them is the keeper:
    it alone starts an engine process and ends what was lost with one; the others join what there
    is, and one of them becomes the keeper when the keeper goes.

    Args:
        settings: of this server; the engine process gets them too.
        on_lost: called when the engine process has died, before another one is started.
        on_down: called when none will be started any more, and at each `wake` after that.
        spare: the first engine process to start, prepared before; dismissed if none is needed.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        on_lost: OnLost = _nothing_ends,
        on_down: OnLost = _nothing_ends,
        respawns: Respawns | None = None,
        spare: SpareEngine | None = None,
    ) -> None:
        self._settings = settings
        self._on_lost = on_lost
        self._on_down = on_down
        self._respawns = respawns or Respawns()
        self._spare = spare
        self._keeping = Keeping(settings.data)
        self._connection: Connection | None = None
        self._engine: RunningEngine | None = None
        self._health = EngineHealth(state=EnginePhase.STARTING, detail="starting")
        self._changed = asyncio.Event()
        self._waiting: dict[OperationId, list[asyncio.Event]] = {}
        self._ended: OrderedDict[OperationId, None] = OrderedDict()
        self._keeper: asyncio.Task[None] | None = None
        self._aspirant: asyncio.Task[None] | None = None
        self._leaving = False
        self._aside: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ for callers

    async def start(self) -> None:
        """Begin to keep an engine process; returns at once (see `settled`). Once is enough."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="engine-keeper")
            self._aspirant = asyncio.create_task(self._aspire(), name="engine-aspirant")

    async def settled(self) -> EngineHealth:
        """Wait until the engine is up, or down for good."""
        while self._health.state is EnginePhase.STARTING:
            await self._change()
        return self._health

    async def down(self) -> EngineHealth:
        """Wait until the engine is down for good."""
        while self._health.state is not EnginePhase.DOWN:
            await self._change()
        return self._health

    def health(self) -> EngineHealth:
        return self._health

    def wake(self) -> None:
        """Say that the queue has something new."""
        if self._health.state is EnginePhase.DOWN and self._keeping.is_mine():
            self._run_aside(self._end_by(self._on_down, self._health.detail))
        else:
            self._send(Wake())

    def cancel(self, operation_id: OperationId) -> None:
        """Ask the engine for an early end of something it is running."""
        self._send(Cancel(operation_id))

    def announce(self, operation_ids: Iterable[OperationId]) -> None:
        """Wake those who wait for operations that ended in this process, here and elsewhere."""
        ids = list(operation_ids)
        self._note_ended(ids)
        if self._settings.is_shared:
            for start in range(0, len(ids), ENDED_PER_LINE):
                self._send(Ended(ids[start : start + ENDED_PER_LINE]))

    def _note_ended(self, operation_ids: Iterable[OperationId]) -> None:
        for operation_id in operation_ids:
            self._ended[operation_id] = None
            for event in self._waiting.pop(operation_id, ()):
                event.set()
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    async def ended(self, operation_id: OperationId, timeout_s: float) -> bool:
        """Wait until an operation has ended; False: it had not within the time, or we are leaving.

        Look at the store first: endings of long ago, or of before this process, are not known here.
        """
        if operation_id in self._ended or self._leaving:
            return operation_id in self._ended
        event = asyncio.Event()
        waiting = self._waiting.setdefault(operation_id, [])
        waiting.append(event)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            if event in waiting:
                waiting.remove(event)
            if not waiting and self._waiting.get(operation_id) is waiting:
                del self._waiting[operation_id]
        return operation_id in self._ended

    def let_go(self) -> None:
        """Send everyone who waits away, now and from now on: the server is about to leave."""
        self._leaving = True
        self._wake_all()

    async def close(self) -> None:
        """Ask the engine process to stop after its slice, and wait until it is gone. One that other
        API processes use stays."""
        self.let_go()
        self._dismiss_spare()
        if self._keeper is None or self._aspirant is None:
            return
        self._keeper.cancel()
        self._aspirant.cancel()
        await asyncio.wait([self._keeper, self._aspirant, *self._aside])
        if self._engine is not None:
            if self._connection is not None:
                await self._part(self._engine, self._connection)
            elif self._keeping.is_mine():
                self._engine.signal(signal.SIGTERM)
                await self._engine.wait_gone(_STOP_GRACE_S)
        if self._connection is not None:
            await self._connection.close()
        self._keeping.give_up()
        self._keeper = self._aspirant = self._connection = self._engine = None

    async def _part(self, engine: RunningEngine, connection: Connection) -> None:
        connection.send(Stop())
        if self._settings.is_shared and await self._stays(connection):
            _log.info("the engine process stays for other API processes")
        else:
            await engine.wait_gone(_STOP_GRACE_S)

    async def _stays(self, connection: Connection) -> bool:
        """Whether the engine process answers that others use it. It leaves without a word."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_GRACE_S):
                async for message in connection.messages():
                    if isinstance(message, Stay):
                        return True
        return False

    # ------------------------------------------------------------- keeping

    async def _keep(self) -> None:
        """Have an engine process and listen to it; when it dies, say so and start another."""
        try:
            while True:
                what = await self._live_with_one()
                if what is None:
                    _log.warning("the connection to the engine process broke; joining it again")
                    continue
                _log.error("the engine process is gone: %s", what)
                if self._health.state is EnginePhase.DOWN:
                    return await self._go_down(self._health.detail)  # it said why
                if not self._keeping.is_mine():
                    self._set_health(EnginePhase.STARTING, f"{what}; its keeper starts another one")
                    continue
                if self._engine is not None and self._engine.refused:
                    return await self._go_down(what)
                await self._end_by(self._on_lost, what)
                wait_s = self._respawns.next_wait_s(time.monotonic())
                if wait_s is None:
                    return await self._go_down(f"{what}; it died too often to start another one")
                self._set_health(EnginePhase.STARTING, f"{what}; starting another one")
                await asyncio.sleep(wait_s)
        except asyncio.CancelledError:
            raise
        except _OtherSettingsError as error:
            await self._go_down(str(error))
        except Exception as error:
            _log.exception("keeping the engine process failed")
            await self._go_down(f"the server cannot start its engine process: {error!r}")

    async def _live_with_one(self) -> str | None:
        """Join or spawn an engine process and listen until it ends.

        Returns:
            What happened to it, in words; None: it lives, but the connection broke.
        """
        if self._engine is None or self._engine.gone():
            self._engine = await self._an_engine()
        self._connection = await connect(self._settings.data, self._engine)
        if self._connection is not None:
            # Whatever was queued while there was no connection, its Wake was lost; and what another
            # API process ended meanwhile was told to nobody here.
            self._send(Wake())
            if self._settings.is_shared:
                self._wake_all()
            async for message in self._connection.messages():
                self._receive(message)
            await self._connection.close()
            self._connection = None
        return await self._engine.fate()

    async def _an_engine(self) -> RunningEngine:
        """The engine process to live with: found or started by us if we are the keeper, else the
        keeper's.

        Raises:
            _OtherSettingsError: the keeper's is of other settings, and stays.
        """
        # A keeper that has just come may be replacing an engine process of other settings.
        deadline = time.monotonic() + REPLACE_GRACE_S + _LOOK_AGAIN_S
        while not self._keeping.is_mine():
            match RunningEngine.found(self._settings):
                case (engine, True):
                    self._dismiss_spare()
                    return engine
                case (_, False) if time.monotonic() > deadline:
                    raise _OtherSettingsError(
                        f"another API process on {self._settings.data} has an engine process of "
                        "other settings. Give both the same models, device, dtype, threads, limits "
                        "and database, or this one another --data folder."
                    )
            await asyncio.sleep(_LOOK_AGAIN_S)
        spare, self._spare = self._spare, None
        engine = await RunningEngine.join_or_spawn(self._settings, spare)
        if spare is not None:
            spare.dismiss()
        return engine

    def _dismiss_spare(self) -> None:
        if self._spare is not None:
            self._spare.dismiss()
            self._spare = None

    async def _aspire(self) -> None:
        """Become the keeper once there is none, before a process of other settings does."""
        while not self._keeping.is_mine():  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(_ASPIRE_EVERY_S)

    async def _go_down(self, what: str) -> None:
        _log.error("no engine process any more: %s", what)
        self._set_health(EnginePhase.DOWN, what)
        # Again until it is done, or those who wait would wait for ever.
        while self._keeping.is_mine() and not await self._end_by(  # noqa: ASYNC110 (no event tells)
            self._on_down, what
        ):
            await asyncio.sleep(_END_AGAIN_S)

    def _receive(self, message: Message) -> None:
        match message:
            case Welcome(pid):
                _log.info("joined the engine process", extra={"pid": pid})
            case State(phase, detail, capacity, doing):
                self._set_health(
                    EnginePhase(phase), detail, capacity, Doing(**doing) if doing else None
                )
            case Ended(operation_ids):
                self._note_ended(operation_ids)
            case _:
                _log.warning("unexpected message from the engine process: %s", message)

    def _set_health(
        self,
        state: EnginePhase,
        detail: str,
        capacity: dict | None = None,
        doing: Doing | None = None,
    ) -> None:
        if state is not self._health.state or (
            state is EnginePhase.STARTING and detail != self._health.detail
        ):
            _log.info("engine %s: %s", state.value, detail)
        pid = self._engine.pid if self._engine is not None and not self._engine.gone() else None
        self._health = EngineHealth(
            state=state, detail=detail, pid=pid, capacity=capacity, doing=doing
        )
        self._changed.set()

    async def _end_by(self, end: OnLost, what: str) -> bool:
        """False: it could not be done; the log says why."""
        try:
            self.announce(await asyncio.to_thread(lambda: list(end(what))))
        except Exception:
            _log.exception("could not end the operations that were lost with the engine process")
            return False
        return True

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake_all(self) -> None:
        """Let everyone who waits look at the store."""
        for waiting in self._waiting.values():
            for event in waiting:
                event.set()

    def _run_aside(self, work) -> None:
        task = asyncio.ensure_future(work)
        self._aside.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._aside.discard)

    def _send(self, message: Message) -> None:
        if self._connection is not None:
            self._connection.send(message)
