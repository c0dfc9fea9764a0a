"""What one run of a program may use, and what became of it."""

import math
from dataclasses import dataclass, fields
from typing import Literal

from mint.recipe.exceptions import ConfigurationError

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one run may use. Nothing is unlimited; a run that needs more says so.

    A limit is kept in one of two ways. "At once": the kernel refuses, and the program sees an error
    of its own (MemoryError, OSError). "Watched": the guard looks every 20 ms and ends the run, so a
    program can be over for that long.
    """

    wall_s: float = 10.0
    """Seconds from the program's start; waiting for a turn does not count. Watched."""
    cpu_s: float = 10.0
    """Seconds of processor time of all its processes together. Watched; part of what children use that
    live for less than a look and that nobody waits for is missed."""
    memory_bytes: int = 512 * MEBIBYTE
    """Address space of each process, at once; resident memory of all together, watched."""
    output_bytes: int = MEBIBYTE
    """Of stdout, and of stderr. Reading stops there and the run is ended."""
    disk_bytes: int = 64 * MEBIBYTE
    """All files together: at once with bubblewrap, else those that have a name, watched. Each single
    file: at once."""
    files: int = 1000
    """Files, folders and links in its private folder, its own files included; with bubblewrap those in
    /tmp and /dev/shm too. Watched. A plain process's folder too deep for a path is over it."""
    processes: int = 32
    """Processes and threads: at once; with the subprocess backend and no root, also watched."""
    open_files: int = 128
    """File descriptors of each process, at once."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ConfigurationError(f"Limits.{field.name}={value!r} is not a number.")
            if not math.isfinite(value) or value <= 0:
                raise ConfigurationError(
                    f"Limits.{field.name}={value}: give a finite number above 0. A run without this "
                    "limit is not offered, since a program nobody has read decides how long it lasts."
                )
            if field.type is int and not isinstance(value, int):
                raise ConfigurationError(f"Limits.{field.name}={value}: give a whole number.")


LimitName = Literal["wall", "cpu", "memory", "output", "disk", "files", "processes", "guard_lost"]
"""Why a run was ended. "guard_lost": the guard was killed, which only a program under its own user
can do (the subprocess backend without root) or the kernel, short of memory."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a program did. It says what happened, never whether it is right: see the graders."""

    exit_code: int | None
    """None if a signal ended it."""
    signal: int | None
    """The signal that ended it. With bubblewrap an exit code of 128 + n reads as signal n, since a
    shell's convention is all that comes through."""
    killed_by: LimitName | None
    """The limit for which the run was ended. None also where the program met a limit as an error of
    its own."""
    stdout_bytes: bytes
    """As written, at most Limits.output_bytes."""
    stderr_bytes: bytes
    stdout_truncated: bool
    stderr_truncated: bool
    wall_s: float
    """Seconds from the program's start to its end."""
    cpu_s: float
    """Processor seconds of all its processes; with bubblewrap, its set-up (a few ms) included."""
    peak_memory_bytes: int
    """Largest resident memory of all its processes together that the guard saw, so 0 for a program
    that was over before the first look."""

    @property
    def stdout(self) -> str:
        """As text; what is not UTF-8 becomes U+FFFD."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """As text; what is not UTF-8 becomes U+FFFD."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def timed_out(self) -> bool:
        """Whether the wall or the processor limit ended it."""
        return self.killed_by in ("wall", "cpu")

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself with exit code 0 and all of its output was read."""
        return self.exit_code == 0 and self.killed_by is None
