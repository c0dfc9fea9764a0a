"""Work on text that a model wrote which may take minutes or gigabytes, in processes that are killed.

A time limit by signal works in the main thread alone, and scoring runs in others; a thread cannot be
stopped. So such work is done by a few processes that wait for it. One that runs into a limit is
killed, and the next request starts another.

This is a bound on time and memory, not a sandbox: the libraries that work there are trusted, the
text is not.
"""

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, cast

from mint.recipe.cores import usable_cores
from mint.recipe.forks import forget_in_forks

MEMORY_BYTES = 2 * 1024**3
"""Address space of one worker on Linux; sympy alone reserves a few hundred megabytes of it."""

_START_S = 120.0
"""To import the libraries: a second, but a machine may be busy."""

_GRACE_S = 5.0
"""A worker ends itself this long after its limit, should nobody be there to kill it."""


@dataclass(frozen=True)
class Cut:
    """A request that was not answered."""

    reason: str
    """`timeout`, `memory`, `recursion` or `crashed`."""


class WorkerPool:
    """As many workers as there are requests at once, up to one per core; further requests wait.

    Waiting does not count against a request's limit. Safe to use from any thread, and after a fork:
    a child starts workers of its own.
    """

    def __init__(self, modules: list[str]) -> None:
        """
        Args:
            modules: what a worker imports before its first request.
        """
        self._modules = modules
        self.forget()
        forget_in_forks(self)
        atexit.register(self.close)

    def ask(self, kind: str, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any] | Cut:
        """The worker's answer, or why there is none.

        Raises:
            RuntimeError: a worker does not start.
        """
        with self._places:
            worker = self._take()
            try:
                answer = worker.ask(kind, arguments, timeout_s)
            except BaseException:  # such as Ctrl-C: it is still at work
                worker.kill()
                raise
            if isinstance(answer, Cut):
                worker.kill()
            else:
                self._idle.append(worker)
            return answer

    def close(self) -> None:
        """Ends the workers that wait. The next request starts new ones."""
        while self._idle:
            self._idle.pop().kill()

    def forget(self) -> None:
        """Begin anew, as in a fork: the workers are the parent's."""
        self._idle: list[_Worker] = []  # append and pop are atomic
        self._places = threading.BoundedSemaphore(usable_cores())

    def _take(self) -> "_Worker":
        try:
            return self._idle.pop()
        except IndexError:
            return self._start()

    def _start(self) -> "_Worker":
        worker = _Worker()
        try:
            answer = worker.ask("ready", {"modules": self._modules}, _START_S)
        except BaseException:
            worker.kill()
            raise
        if isinstance(answer, Cut):
            worker.kill()
            raise RuntimeError(
                f"a worker process for grading did not start ({answer.reason}). It runs "
                f"{sys.executable} and imports {', '.join(self._modules)}; its own message is above."
            )
        return worker


class _Worker:
    """One process, with one request at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mint.recipe.grading.worker_program", str(MEMORY_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            text=True,
            encoding="ascii",
            start_new_session=True,  # Ctrl-C is for whoever asks
        )

    def ask(self, kind: str, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any] | Cut:
        request = {"kind": kind, "arguments": arguments, "seconds": timeout_s + _GRACE_S}
        with _Deadline(timeout_s, self._process.kill) as deadline:
            line = self._exchange(json.dumps(request))
        if deadline.passed:
            return Cut("timeout")
        if not line.endswith("\n"):
            return Cut("crashed")
        answer = json.loads(line)
        failure = answer.get("failure")
        return Cut(failure) if failure in ("memory", "recursion") else answer

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not yet sent cannot be sent any more
                cast(IO[str], pipe).close()

    def _exchange(self, line: str) -> str:
        try:
            stdin = cast(IO[str], self._process.stdin)
            stdin.write(line + "\n")
            stdin.flush()
            return cast(IO[str], self._process.stdout).readline()
        except BrokenPipeError:  # it died before it read
            return ""


class _Deadline:
    """Calls `act` once the time is over, unless the block ended before."""

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self.passed = False
        self._act = act
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def __enter__(self) -> "_Deadline":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()  # from here on `passed` no longer changes

    def _pass(self) -> None:
        self.passed = True
        self._act()


def _environment() -> dict[str, str]:
    """What an interpreter needs to start, and nothing else: no keys and no settings.

    One thread for numpy, which otherwise reserves memory for each core.
    """
    kept = {"PATH", "HOME", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH"}
    return {
        **{name: value for name, value in os.environ.items() if name in kept},
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
