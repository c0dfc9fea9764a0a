"""System calls that are refused to programs: those that a watcher cannot see the effect of.

A filter for the kernel, in its classic packet filter language. Each refused call answers ENOSYS, as on a
kernel without it, so programs fall back to something else.

Source of the layout: Linux, Documentation/userspace-api/seccomp_filter.rst; of the numbers: its
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

import errno
import platform
import struct
import sys
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
"""Load a word, jump if it is equal, jump if it is not less, and return: the four instructions used."""
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
"""Where the two lie in what the kernel shows the filter."""
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE = 0x00050000 | errno.ENOSYS
_OTHER_TABLE = 0x40000000
"""On x86-64, numbers from here on are another table of calls (x32)."""


@dataclass(frozen=True)
class _Machine:
    architecture: int
    """As the kernel's audit numbers it."""
    calls: dict[str, int]


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        {
            # Memory that belongs to no process, so that no sum over processes has it; and segments
            # and queues outlive everybody.
            "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "msgget": 68, "semget": 64, "mq_open": 240,
            # Doors into the kernel that no answer to a task needs.
            "io_uring_setup": 425, "userfaultfd": 323, "bpf": 321, "perf_event_open": 298,
            "add_key": 248, "request_key": 249, "keyctl": 250,
        },
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            "memfd_create": 279, "memfd_secret": 447, "shmget": 194, "msgget": 186, "semget": 190, "mq_open": 180,
            "io_uring_setup": 425, "userfaultfd": 282, "bpf": 280, "perf_event_open": 241,
            "add_key": 217, "request_key": 218, "keyctl": 219,
        },
    ),
}  # fmt: skip
"""By name, as `uname -m` has it."""


def refusing_filter() -> bytes | None:
    """The filter, as the kernel wants it; None where there is no Linux, or no table for the machine.

    Calls made by the rules of another machine, such as those of 32-bit programs, end the program: they
    have numbers of their own.
    """
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        return None
    checks = [(_EQUAL, number) for number in machine.calls.values()]
    if platform.machine() == "x86_64":
        checks.append((_AT_LEAST, _OTHER_TABLE))
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, machine.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        # To the last step if it holds, else to the next one.
        *((how, len(checks) - i, 0, value) for i, (how, value) in enumerate(checks)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
