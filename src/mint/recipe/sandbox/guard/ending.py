"""Ending a program with everything that it has started."""

import os
import resource
import signal
import time
from contextlib import suppress

from mint.recipe.sandbox.guard.system import LINUX, as_user
from mint.recipe.sandbox.guard.watch import descendants

GIVE_UP_S = 10.0


def end_all(user: int | None, group: int | None = None) -> None:
    """Kill whatever is below this process, and wait for it.

    Each may start others while we look. A user of its own is killed whole, by one call; otherwise
    each is first forbidden to start more. Orphans come to us, so in the end there is nobody left to
    wait for. What does not go within GIVE_UP_S hangs in the kernel, and is left to it.

    Args:
        user: the program's, if it is another than ours.
        group: the program's process group, for systems without a /proc to find the others by.
    """
    give_up = time.monotonic() + GIVE_UP_S
    while not _nobody_is_left() and time.monotonic() < give_up:
        if user is not None:
            as_user(user, _kill_all_of_this_user)
        elif group is not None and not LINUX:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        for pid in descendants():
            with suppress(OSError):
                if LINUX and user is None:
                    resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _kill_all_of_this_user() -> None:
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # but for the caller


def _nobody_is_left() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False
