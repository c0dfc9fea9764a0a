"""The process that guards are forked from, as seen by us."""

import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import mint
from mint.recipe.forks import forget_in_forks

START = "import sys; sys.path.insert(0, sys.argv[1]); from mint.recipe.sandbox.guard.main import main; main()"
"""Run with nothing on the path but the standard library and the folder that `mint` lies in."""
PACKAGES = Path(mint.__file__).parents[1]


class Keeper:
    """Starts guards; begun with the first of them, and again should somebody kill it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        forget_in_forks(self)

    def start_guard(self, fds: Sequence[int]) -> None:
        """Have a guard started with these descriptors, which may be closed afterwards."""
        with self._lock:
            requests = self._requests or self._begin()
            try:
                _send(requests, fds)
            except OSError:
                self._end()
                _send(self._begin(), fds)

    def close(self) -> None:
        """End the keeper; guards see their programs to the end."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """In a fork: the keeper is the parent's, and waits for the end of its requests."""
        self._lock = threading.Lock()  # a thread of the parent may have held it
        if self._requests is not None:
            self._requests.close()
            self._requests = None

    def _begin(self) -> socket.socket:
        ours, keepers = socket.socketpair()
        with keepers:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", START, str(PACKAGES)],
                stdin=keepers.fileno(),
                stdout=subprocess.DEVNULL,
                env={"LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,  # a Ctrl-C is ours to pass on
            )
        self._requests = ours
        return ours

    def _end(self) -> None:
        if self._requests is None or self._process is None:
            return
        self._requests.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:  # somebody has stopped it
            self._process.kill()
            self._process.wait()
        self._requests = None


def _send(requests: socket.socket, fds: Sequence[int]) -> None:
    socket.send_fds(requests, [b"x"], fds)
