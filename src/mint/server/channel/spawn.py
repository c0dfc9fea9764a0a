"""Starting the engine process."""

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from mint.server.channel.cores import choose_threads
from mint.server.settings import ServerSettings

_log = logging.getLogger(__name__)

CANNOT_START = 78
"""Exit status for "not with these settings" (EX_CONFIG): trying again would change nothing."""

ENGINE_MODULE = "mint.server.worker.main"
"""Run by name, not imported: what the engine process needs stays out of this one."""

_STDERR = 2


def spawn_engine(settings: ServerSettings) -> subprocess.Popen[bytes]:
    """Start an engine process for these settings; it writes its log to our stderr."""
    return SpareEngine(settings).begin()


class SpareEngine:
    """An engine process that does its imports and waits for its settings.

    They are what takes long at a start, so the API process starts it before its own imports, and
    before it knows whether it will need it. It leaves when it is dismissed, or when we die.

    It gets a session of its own: a Ctrl-C in the terminal is for the API process, which then asks
    the engine to stop, and an API process that dies does not take it along once it works. It reads
    its settings from stdin: everybody on the machine can see a command line, and they may hold a
    password.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._process = subprocess.Popen(
            [sys.executable, "-m", ENGINE_MODULE, settings.engine.partition(":")[0]],
            stdin=subprocess.PIPE,
            stdout=_STDERR,
            env=engine_environment(settings, os.environ),
            start_new_session=True,
        )

    def begin(self) -> subprocess.Popen[bytes]:
        """Have it work."""
        process = self._process
        assert process.stdin is not None
        threads = choose_threads(self._settings.threads, os.environ)
        _log.info("the engine process gets %s", threads, extra={"pid": process.pid})
        with process.stdin, suppress(BrokenPipeError):  # died at once: its exit status tells
            process.stdin.write(self._settings.to_json().encode())
        return process

    def dismiss(self) -> None:
        """Have it leave; nothing if it works already."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
            self._process.kill()  # it has nothing to put in order
            self._process.wait()


def engine_environment(settings: ServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of an engine process: what OpenMP and torch read once, before anything is
    imported. Where the user has set a variable, it stays, but for the number of threads if
    `settings.threads` says another."""
    return {
        # Threads that spin at the end of a region cost 2 to 45 times on cores that others use too.
        "OMP_WAIT_POLICY": "PASSIVE",
        # Large temporaries on huge pages: 2.3 to 3.4 times faster on the measured machines.
        "THP_MEM_ALLOC_ENABLE": "1",
        # Training has a thread of its own, and glibc gives each thread a heap of its own, which is
        # handed back and asked for again with every pass: 120,000 page faults, a tenth of its time,
        # and a fifth of the process's memory. One heap has none of that; one thread at a time computes.
        "MALLOC_ARENA_MAX": "1",
        **environ,
        "OMP_NUM_THREADS": str(choose_threads(settings.threads, environ).count),
    }
