"""One program, from its start until nothing of it is left."""

import os
import resource
import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mint.recipe.sandbox.guard.ending import end_all
from mint.recipe.sandbox.guard.namespaces import SHARED_MEMORY, SHARED_MEMORY_BYTES, Namespaces
from mint.recipe.sandbox.guard.start import Descriptors, start
from mint.recipe.sandbox.guard.watch import CpuMeter, folder_usage, mounted_files, usage
from mint.recipe.sandbox.removal import remove_tree

TICK_S = 0.02
FOLDER_EVERY_TICKS = 5
"""A walk through a thousand files takes milliseconds."""
BUBBLEWRAPS_TASKS = 2
FILES_OF_EMPTY_FOLDERS = 3
"""The mounted folder, the program's within it, and that of shared memory."""


class Run:
    """Starts a program, watches over it, ends it and says what happened."""

    def __init__(self, order: Mapping[str, Any], lifeline: int) -> None:
        self._order = order
        self._limits: Mapping[str, float] = order["limits"]
        self._lifeline = lifeline
        self._woken = _pipe_that_children_wake()
        self._main = 0
        self._ended: int | None = None  # the program's wait status
        self._inside: int | None = None  # bubblewrap's process 1, as we see it
        self._peak_memory_bytes = 0
        self._meter = CpuMeter()

    def to_the_end(self, given: Descriptors) -> dict[str, Any]:
        """The report."""
        namespaces = Namespaces() if self._order["namespaces"] else None
        self._main, problem = start(self._order, namespaces, given)
        if problem:
            os.waitpid(self._main, 0)
            return {"error": problem}
        if namespaces:
            self._inside = namespaces.admit(self._order["namespaces"], self._order["user"])
        began = time.monotonic()
        reason = self._watch(began + self._limits["wall_s"])
        wall_s = time.monotonic() - began
        end_all(self._order["user"], self._main)
        if not namespaces:
            remove_tree(Path(self._order["folder"]))  # here, as our owner may be gone by now
        code = self._exit_code()
        if namespaces and not reason and code == 1 and not namespaces.has_started():
            return {"error": "bubblewrap could not start it"}
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "reason": reason,
            "wall_s": wall_s,
            # The kernel buries what dies with its namespace without adding up what it has used.
            "cpu_s": max(self._meter.most_s, spent.ru_utime + spent.ru_stime),
            "peak_memory_bytes": self._peak_memory_bytes,
        }

    def _watch(self, deadline: float) -> str | None:
        """Wait for the program's end, or for a reason to end it."""
        poll = select.poll()
        poll.register(self._lifeline, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        tick = 0
        while True:
            left_s = deadline - time.monotonic()
            ready = poll.poll(1000 * max(0.0, min(TICK_S, left_s)))
            self._reap()
            if self._ended is not None:
                return None
            if any(fd == self._lifeline for fd, _ in ready):
                return "stopped"
            if left_s <= 0:
                return "wall"
            if reason := self._limit_passed(look_at_files=tick % FOLDER_EVERY_TICKS == 0):
                return reason
            tick += 1

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._main:
                    self._ended = ended[1]

    def _limit_passed(self, *, look_at_files: bool) -> str | None:
        used = usage()
        self._peak_memory_bytes = max(self._peak_memory_bytes, used.memory_bytes)
        cpu_s = self._meter.seconds(used)
        if used.memory_bytes > self._limits["memory_bytes"]:
            return "memory"
        if cpu_s > self._limits["cpu_s"]:
            return "cpu"
        if used.tasks > self._limits["processes"] + (BUBBLEWRAPS_TASKS if self._inside else 0):
            return "processes"
        return self._files_passed() if look_at_files else None

    def _files_passed(self) -> str | None:
        folder, most = self._order["folder"], int(self._limits["files"])
        if self._inside:  # its size is that of the file system
            files = mounted_files(self._inside, folder, int(self._limits["disk_bytes"]))
            files += mounted_files(self._inside, SHARED_MEMORY, SHARED_MEMORY_BYTES)
            return "files" if files > most + FILES_OF_EMPTY_FOLDERS else None
        files, size_bytes = folder_usage(folder, most)
        if files > most:
            return "files"
        return "disk" if size_bytes > self._limits["disk_bytes"] else None

    def _exit_code(self) -> int:
        """As subprocess has it: below 0 for a signal."""
        if self._ended is None:
            return -signal.SIGKILL  # ours
        code = os.waitstatus_to_exitcode(self._ended)
        is_signal = self._inside and 128 < code < 128 + signal.NSIG  # how bubblewrap reports one
        return 128 - code if is_signal else code


def _pipe_that_children_wake() -> int:
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    return woken
