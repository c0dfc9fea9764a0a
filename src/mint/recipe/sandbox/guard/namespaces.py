"""What the guard has to do with bubblewrap while that puts up its walls."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress

from mint.recipe.sandbox.guard.system import LINUX, as_user

STATUS, GATE = 3, 4
"""Descriptors, as bubblewrap sees them. It closes both before the program starts."""

SHARED_MEMORY = "/dev/shm"
"""A file system which locks of multiprocessing need. Outside of Limits.disk_bytes."""
SHARED_MEMORY_BYTES = 1024 * 1024


class Namespaces:
    """bubblewrap's set-up, held at a gate until its process 1 has the limits that count inside.

    The kernel counts processes per user and user namespace, so a limit set before would count all
    that the user has elsewhere; and bubblewrap needs more open files than its program may have.
    """

    def __init__(self) -> None:
        self._status, self._status_end = os.pipe()
        self._gate_end, self._gate = os.pipe()
        self._told = b""

    def arguments(self) -> list[str]:
        """What bubblewrap has to be told."""
        return ["--json-status-fd", str(STATUS), "--block-fd", str(GATE)]

    def places(self) -> dict[int, int]:
        """The number that each descriptor shall have there -> the one it has here."""
        return {STATUS: self._status_end, GATE: self._gate_end}

    def admit(self, limits: Mapping[str, int], user: int | None) -> int | None:
        """Set the limits and open the gate.

        Returns:
            Process 1 inside as we see it; None if bubblewrap failed before.
        """
        os.close(self._status_end)
        os.close(self._gate_end)
        while b"}" not in self._told:
            more = os.read(self._status, 4096)
            if not more:
                return None
            self._told += more
        pid = json.loads(self._told[: self._told.index(b"}") + 1])["child-pid"]
        as_user(user, lambda: _set_limits(pid, limits))
        with suppress(BrokenPipeError):
            os.write(self._gate, b"x")
        return pid

    def has_started(self) -> bool:
        """Whether the program was started, once all is over: bubblewrap names the exit code of that
        alone."""
        while more := os.read(self._status, 4096):
            self._told += more
        return b'"exit-code"' in self._told


def _set_limits(pid: int, limits: Mapping[str, int]) -> None:
    import resource  # not on Windows, where this module is imported for its names

    assert LINUX
    for name, value in limits.items():
        with suppress(ProcessLookupError):  # bubblewrap failed meanwhile, and will say so
            resource.prlimit(pid, getattr(resource, name), (value, value))
