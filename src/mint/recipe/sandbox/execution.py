"""One run, from its order to its result, in a thread: no event loop, so that none can leave it behind."""

import json
import os
import selectors
import shlex
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any

from mint.recipe.exceptions import SandboxError
from mint.recipe.forks import forget_in_forks
from mint.recipe.sandbox.keeper import Keeper
from mint.recipe.sandbox.launch import Backend, Launch, Program
from mint.recipe.sandbox.limits import LimitName, Result

GRACE_S = 20.0
"""Beyond the wall limit, until a guard that says nothing is killed. It gives up after 10 s itself."""
CHUNK_BYTES = 65536
ASK_EVERY_S = 0.25
"""How soon a run is ended whose owner went without a word."""


class Stop:
    """A way to end a run from another thread, before or while it runs.

    Args:
        is_wanted: asked now and then; False ends the run too. For those who go without a word: a loop
            that is closed cancels nothing.
    """

    def __init__(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self.is_wanted = is_wanted
        self._lock = threading.Lock()
        self._is_set = False
        self._wake: int | None = None

    def set(self) -> None:
        """End the run; nothing happens if it has ended."""
        with self._lock:
            self._is_set = True
            if self._wake is not None:
                os.write(self._wake, b"x")
                self._wake = None

    def attach(self, wake: int) -> None:
        """Write to this pipe once set."""
        with self._lock:
            self._wake = wake
            is_set = self._is_set
        if is_set:
            self.set()

    def detach(self) -> None:
        """The pipe is about to be closed."""
        with self._lock:
            self._wake = None

    def forget(self) -> None:
        """In a fork: the run is the parent's."""
        self._lock = threading.Lock()  # a thread of the parent may have held it
        self._wake = None


def execute(backend: Backend, keeper: Keeper, program: Program, stop: Stop) -> Result:
    """Run a program and wait for its end.

    Raises:
        SandboxError: it could not be started, which is nothing the program did.
    """
    try:
        with backend.launch(program) as launch:
            return _Conversation(launch, program, stop).until_the_end(keeper)
    except OSError as error:
        raise SandboxError(f"{_named(program.command)} was not run: {error}.") from error


def _named(command: Sequence[str]) -> str:
    return shlex.join(command)[:200]


class _Pipes:
    """The pipes of one run. Those ends that the guard has are closed here once it has them."""

    def __init__(self, open_meanwhile: ExitStack) -> None:
        def pipe() -> tuple[int, int]:
            ends = os.pipe()
            self._ends += ends
            return ends

        open_meanwhile.callback(self.close_all)
        self._ends: list[int] = []
        self._closed: set[int] = set()
        self.guards_stdin, self.stdin = pipe()
        self.stdout, self.guards_stdout = pipe()
        self.stderr, self.guards_stderr = pipe()
        self.report, self.guards_report = pipe()
        self.guards_lifeline, self.lifeline = pipe()
        self.woken, self.wake = pipe()
        self.guards_ends = (
            self.guards_stdin,
            self.guards_stdout,
            self.guards_stderr,
            self.guards_lifeline,
            self.guards_report,
        )
        """In the order in which the guard expects them."""

    def close(self, *ends: int) -> None:
        for end in ends:
            if end not in self._closed:
                self._closed.add(end)
                os.close(end)

    def close_all(self) -> None:
        self.close(*self._ends)


class _Conversation:
    """Feeding stdin, reading what comes, up to the guard's report."""

    def __init__(self, launch: Launch, program: Program, stop: Stop) -> None:
        self._launch = launch
        self._command = program.command
        self._most = program.limits.output_bytes
        self._began = time.monotonic()
        self._deadline = self._began + program.limits.wall_s + GRACE_S
        self._stdin = memoryview(program.stdin)
        self._stop = stop
        self._read: dict[int, bytearray] = {}
        self._truncated: set[int] = set()
        self._reason: LimitName | None = None

    def until_the_end(self, keeper: Keeper) -> Result:
        with ExitStack() as open_meanwhile:
            self._pipes = _Pipes(open_meanwhile)
            forget_in_forks(self)
            self._selector = open_meanwhile.enter_context(selectors.DefaultSelector())
            self._stop.attach(self._pipes.wake)
            open_meanwhile.callback(self._stop.detach)
            self._start(keeper)
            self._talk()
            self._drain()
            return self._result()

    def forget(self) -> None:
        """In a fork, whose copies of the pipes would keep the program from seeing that they are closed."""
        self._stop.forget()
        self._pipes.close_all()

    def _start(self, keeper: Keeper) -> None:
        pipes = self._pipes
        keeper.start_guard([*pipes.guards_ends, *self._launch.inherited])
        pipes.close(*pipes.guards_ends)
        order = json.dumps(asdict(self._launch.order)).encode() + b"\n"
        with suppress(BrokenPipeError):
            while order:
                order = order[os.write(pipes.lifeline, order) :]

    def _talk(self) -> None:
        pipes = self._pipes
        for fd in (pipes.stdin, pipes.stdout, pipes.stderr):
            os.set_blocking(fd, False)
        for fd in (pipes.stdout, pipes.stderr, pipes.report):
            self._read[fd] = bytearray()
            self._selector.register(fd, selectors.EVENT_READ)
        self._selector.register(pipes.woken, selectors.EVENT_READ)
        self._feed()
        while pipes.report in self._selector.get_map():
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                self._end_guard()
                return
            for key, _ in self._selector.select(min(left_s, ASK_EVERY_S)):
                self._answer(key.fd)
            if not self._stop.is_wanted():
                self._stop.set()

    def _answer(self, fd: int) -> None:
        if fd == self._pipes.woken:
            self._selector.unregister(fd)
            self._pipes.close(self._pipes.lifeline)
        elif fd == self._pipes.stdin:
            self._feed()
        elif not self._take(fd):
            self._selector.unregister(fd)

    def _feed(self) -> None:
        """Write as much of stdin as fits; a program that does not read it loses nothing but that."""
        stdin = self._pipes.stdin
        try:
            while self._stdin:
                self._stdin = self._stdin[os.write(stdin, self._stdin[:CHUNK_BYTES]) :]
        except BlockingIOError:
            if stdin not in self._selector.get_map():
                self._selector.register(stdin, selectors.EVENT_WRITE)
            return
        except BrokenPipeError:
            pass
        if stdin in self._selector.get_map():
            self._selector.unregister(stdin)
        self._pipes.close(stdin)

    def _take(self, fd: int) -> bool:
        """Read once; False at the end, or once a stream is over its limit and the run is to end."""
        try:
            more = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        read = self._read[fd]
        read += more
        if fd != self._pipes.report and len(read) > self._most:
            del read[self._most :]
            self._truncated.add(fd)
            self._reason = "output"
            self._pipes.close(self._pipes.lifeline)
            return False
        return bool(more)

    def _drain(self) -> None:
        """What was written before the end and is still in the pipes.

        Never waits: a process that got away may hold the other end.
        """
        for fd in (self._pipes.stdout, self._pipes.stderr):
            while fd not in self._truncated and fd in self._selector.get_map():
                before = len(self._read[fd])
                if not self._take(fd) or len(self._read[fd]) == before:
                    break

    def _result(self) -> Result:
        number, _, told = self._read[self._pipes.report].partition(b"\n")
        if not number:
            raise SandboxError(
                f"{_named(self._command)} was not run: no guard for it started. The machine may be short of "
                "processes or memory, or somebody has stopped the keeper."
            )
        report = json.loads(told) if told else self._lost()
        if "error" in report:
            said = bytes(self._read[self._pipes.stderr][-500:]).decode("utf-8", "replace").strip()
            raise SandboxError(
                f"{_named(self._command)} did not start: {report['error']}. {said}".rstrip()
            )
        reason = report["reason"]
        return Result(
            exit_code=report["exit_code"],
            signal=report["signal"],
            killed_by=self._reason or (None if reason == "stopped" else reason),
            stdout_bytes=bytes(self._read[self._pipes.stdout]),
            stderr_bytes=bytes(self._read[self._pipes.stderr]),
            stdout_truncated=self._pipes.stdout in self._truncated,
            stderr_truncated=self._pipes.stderr in self._truncated,
            wall_s=report["wall_s"],
            cpu_s=report["cpu_s"],
            peak_memory_bytes=report["peak_memory_bytes"],
        )

    def _lost(self) -> dict[str, Any]:
        """What is left to say of a run whose guard was killed, by whomever."""
        return {
            "exit_code": None,
            "signal": int(signal.SIGKILL),
            "reason": "wall" if time.monotonic() >= self._deadline else "guard_lost",
            "wall_s": time.monotonic() - self._began,
            "cpu_s": 0.0,
            "peak_memory_bytes": 0,
        }

    def _end_guard(self) -> None:
        """Kill a guard that has not ended its program in time, and the program with it: it has asked
        the kernel for that."""
        number, complete, _ = self._read[self._pipes.report].partition(b"\n")
        if complete:
            with suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
