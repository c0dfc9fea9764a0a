"""The keeper: forks a guard for each byte on its stdin, a socket.

With each byte come file descriptors: the program's stdin, stdout and stderr; the lifeline; the report;
and what the program inherits.

The lifeline gives one line, the order (`mint.recipe.sandbox.launch.Order` as JSON), and stays open:
once it is at its end, be it closed or its owner dead, the program is ended. The report takes a line
with the guard's process number, then what happened, as JSON.
"""

import json
import os
import resource
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress

from mint.recipe.sandbox.guard import system
from mint.recipe.sandbox.guard.ending import end_all
from mint.recipe.sandbox.guard.run import Run
from mint.recipe.sandbox.guard.start import HIGHEST_FD, Descriptors

MOST_FDS = 250


def main() -> None:
    system.make_unreadable()  # nor will the guards be: a program may be of the same user
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards speak for themselves
    _allow_enough_descriptors()
    with socket.socket(fileno=0) as requests:
        while True:
            word, fds, _, _ = socket.recv_fds(requests, 1, MOST_FDS)
            if not word:
                return
            if os.fork() == 0:
                requests.close()
                _guard(fds)
                os._exit(0)
            for fd in fds:
                os.close(fd)


def _guard(fds: Sequence[int]) -> None:
    """See one program through, in a fork of the keeper."""
    stdin, stdout, stderr, lifeline, report, *inherited = fds
    os.write(report, b"%d\n" % os.getpid())
    order = json.loads(_line(lifeline))
    system.adopt_orphans()
    try:
        said = Run(order, lifeline).to_the_end(Descriptors((stdin, stdout, stderr), inherited))
    except Exception as error:
        end_all(order["user"])
        said = {"error": f"its guard failed with {type(error).__name__}: {error}"}
    with suppress(BrokenPipeError):  # whoever asked is gone
        os.write(report, json.dumps(said).encode())


def _line(fd: int) -> bytes:
    read = b""
    while not read.endswith(b"\n"):
        more = os.read(fd, 65536)
        if not more:
            os._exit(0)  # nobody wants it any more
        read += more
    return read


def _allow_enough_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= HIGHEST_FD:  # as on macOS
        resource.setrlimit(resource.RLIMIT_NOFILE, (HIGHEST_FD + 1, hard))
