"""The engine process as the API process holds it: its own child, or one it found running."""

import asyncio
import logging
import os
import signal
import subprocess
from dataclasses import dataclass, field

import psutil

from mint.server.channel.engine_file import read_address
from mint.server.channel.spawn import CANNOT_START, ENGINE_MODULE, SpareEngine, spawn_engine
from mint.server.settings import ServerSettings

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.05
REPLACE_GRACE_S = 30.0
_EXIT_NOTICE_S = 5.0
"""Between the end of a process's connection and its end as a process."""


@dataclass
class Respawns:
    """How often a dead engine process is replaced before we give up. Times are monotonic seconds.

    An engine that dies five times in ten minutes dies of something that a sixth will not cure.
    """

    most: int = 5
    within_s: float = 600.0
    first_wait_s: float = 0.5
    _deaths: list[float] = field(default_factory=list)

    def next_wait_s(self, now: float) -> float | None:
        """Note a death; returns how long to wait before the next start, or None to give up."""
        self._deaths = [then for then in self._deaths if now - then < self.within_s] + [now]
        if len(self._deaths) > self.most:
            return None
        return self.first_wait_s * 2 ** (len(self._deaths) - 1)


class RunningEngine:
    """One engine process."""

    def __init__(self, pid: int, child: subprocess.Popen[bytes] | None) -> None:
        self.pid = pid
        self._child = child
        self._found = None if child else _process(pid)

    @classmethod
    def found(cls, settings: ServerSettings) -> "tuple[RunningEngine, bool] | None":
        """The engine process that runs on the data folder, and whether its settings are ours."""
        address = read_address(settings.data)
        engine = cls(address.pid, None) if address else None
        if address is None or engine is None or engine.gone():
            return None
        return engine, address.fingerprint == settings.engine_fingerprint()

    @classmethod
    async def join_or_spawn(
        cls, settings: ServerSettings, spare: SpareEngine | None = None
    ) -> "RunningEngine":
        """The data folder's engine process: the one that runs, if its settings are ours.

        Args:
            spare: one that waits for settings, taken rather than spawning another.
        """
        match cls.found(settings):
            case (found, True):
                _log.info("joining the engine process that runs already", extra={"pid": found.pid})
                return found
            case (found, False):
                _log.info("stopping an engine process of other settings", extra={"pid": found.pid})
                found.signal(signal.SIGTERM)
                await found.wait_gone(REPLACE_GRACE_S)
        child = spare.begin() if spare else await asyncio.to_thread(spawn_engine, settings)
        return cls(child.pid, child)

    def gone(self) -> bool:
        if self._child is not None:
            return self._child.poll() is not None
        if self._found is None or not self._found.is_running():
            return True
        return self._found.status() == psutil.STATUS_ZOMBIE

    def signal(self, number: int) -> None:
        if not self.gone():
            os.kill(self.pid, number)

    async def wait_gone(self, grace_s: float) -> None:
        """Wait for the end it was asked for; after the grace, make it end.

        What it had begun then counts as lost, as after a crash; what waits stays in the queue.
        """
        if not await self._gone_within(grace_s):
            _log.warning("the engine process does not leave within %.0f s; killing it", grace_s)
            self.signal(signal.SIGKILL)
            await self._gone_within(_EXIT_NOTICE_S)

    @property
    def refused(self) -> bool:
        """Whether it ended because of its settings, so that another one would too."""
        return self._child is not None and self._child.poll() == CANNOT_START

    async def fate(self) -> str | None:
        """What became of it, in words for the user; None: it runs on."""
        if not await self._gone_within(_EXIT_NOTICE_S):
            return None
        status = self._child.returncode if self._child else None
        if status is None:
            return "the engine process ended"
        if status < 0:
            what = f"the engine process was killed by signal {-status}"
            return f"{what} (out of memory?)" if status == -signal.SIGKILL else what
        if status == CANNOT_START:
            return "the engine process cannot start with these settings; its log says why"
        return f"the engine process ended with exit status {status}; its log says why"

    async def _gone_within(self, seconds: float) -> bool:
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.gone():
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_LOOK_AGAIN_S)
        return True


def _process(pid: int) -> psutil.Process | None:
    """The engine process of that number; numbers are reused, so its command line is looked at."""
    try:
        process = psutil.Process(pid)
        return process if _is_engine(process) else None
    except psutil.Error:
        return None


def _is_engine(process: psutil.Process) -> bool:
    return ENGINE_MODULE in process.cmdline()
