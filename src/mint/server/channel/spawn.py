"""Starting the engine process."""

import os
import subprocess
import sys
from contextlib import suppress

from mint.server.channel.cores import usable_cores
from mint.server.settings import ServerSettings

CANNOT_START = 78
"""Exit status for "not with these settings" (EX_CONFIG): trying again would change nothing."""

ENGINE_MODULE = "mint.server.worker.main"
"""Run by name, not imported: what the engine process needs stays out of this one."""

_STDERR = 2


def spawn_engine(settings: ServerSettings) -> subprocess.Popen[bytes]:
    """Start an engine process for these settings; it writes its log to our stderr.

    It gets a session of its own: a Ctrl-C in the terminal is for the API process, which then asks
    the engine to stop, and an API process that dies does not take it along. It reads its settings
    from stdin: everybody on the machine can see a command line, and they may hold a password.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", ENGINE_MODULE],
        stdin=subprocess.PIPE,
        stdout=_STDERR,
        env=engine_environment(settings),
        start_new_session=True,
    )
    assert process.stdin is not None
    with process.stdin, suppress(BrokenPipeError):  # died at once: its exit status tells
        process.stdin.write(settings.to_json().encode())
    return process


def engine_environment(settings: ServerSettings) -> dict[str, str]:
    """Our environment, and what OpenMP and torch read once, before anything is imported."""
    threads = str(settings.threads or usable_cores())
    return {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        # Threads that spin at the end of a region cost 2 to 45 times on cores that others use too.
        "OMP_WAIT_POLICY": "PASSIVE",
        # Large temporaries on huge pages: 2.3 to 3.4 times faster on the measured machines.
        "THP_MEM_ALLOC_ENABLE": "1",
    }
