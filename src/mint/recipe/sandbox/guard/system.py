"""What Python has no name for: a process's attributes on Linux. Elsewhere each does nothing."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

LINUX = sys.platform == "linux"

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _BYTES_A_STEP = 22, 2, 8


class _Filter(ctypes.Structure):
    _fields_ = (("steps", ctypes.c_ushort), ("first", ctypes.c_char_p))


def _prctl(option: int, value: int, pointer: Any = None) -> None:
    if LINUX and ctypes.CDLL(None, use_errno=True).prctl(option, value, pointer, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def make_unreadable() -> None:
    """Let no process of the same user trace this one or read its memory and descriptors."""
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own is gone."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed once the parent is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def gain_no_rights() -> None:
    """Let programs with a setuid bit give none, here and in all descendants."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def refuse_calls(filter_: bytes) -> None:
    """Have the kernel ask this filter about each system call, here and in all descendants.

    Needs `gain_no_rights` before.
    """
    told = _Filter(len(filter_) // _BYTES_A_STEP, filter_)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(told))


def change_user(user: int) -> None:
    """Become another user for good, in no group but its own."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def as_user(user: int | None, act: Callable[[], None]) -> None:
    """Do something as the program's user, if that is another than ours.

    Root in a container often may not set the limits of others; the same user always may. It is not
    done if a process of that user stops ours at it.
    """
    if user is None:
        act()
        return
    pid = os.fork()
    if pid == 0:
        try:
            change_user(user)
            act()
        finally:
            os._exit(0)
    with suppress(ChildProcessError):
        # A program may stop whatever is its user's, and so this child: then do without it.
        if os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]):
            with suppress(PermissionError):
                os.kill(pid, signal.SIGKILL)
