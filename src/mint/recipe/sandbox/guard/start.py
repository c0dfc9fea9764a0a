"""Starting a program: from a fork of the guard to what was ordered."""

import fcntl
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from mint.recipe.sandbox.guard import system
from mint.recipe.sandbox.guard.namespaces import Namespaces
from mint.recipe.sandbox.guard.watch import tasks_of
from mint.recipe.sandbox.refused_calls import refusing_filter

OUT_OF_THE_WAY = 300
"""Descriptors are moved above this before each gets its place; more are never received."""
HIGHEST_FD = 2 * OUT_OF_THE_WAY


class Descriptors(NamedTuple):
    """What the program is given, under the numbers it has here."""

    stdio: tuple[int, int, int]
    inherited: Sequence[int]


def start(
    order: Mapping[str, Any], namespaces: Namespaces | None, given: Descriptors
) -> tuple[int, str]:
    """Start the program; returns its process number and, if it did not start, why."""
    argv = order["argv"]
    places = dict(enumerate(given.stdio))
    places |= dict(enumerate(given.inherited, order["first_inherited"]))
    if namespaces:
        argv = [argv[0], *namespaces.arguments(), *argv[1:]]
        places |= namespaces.places()
    problem, problem_end = _pipe_out_of_the_way()
    pid = os.fork()
    if pid == 0:
        try:
            _become(order, argv, places, problem_end)
        except BaseException as error:
            with suppress(OSError):
                os.write(problem_end, f"{type(error).__name__}: {error}".encode())
        os._exit(127)
    for fd in (problem_end, *given.stdio, *given.inherited):
        os.close(fd)
    return pid, os.read(problem, 4096).decode("utf-8", "replace")


def _become(
    order: Mapping[str, Any], argv: list[str], places: Mapping[int, int], problem_end: int
) -> None:
    """Turn this process into the program.

    Args:
        places: number that a descriptor shall have in the program -> the one it has here.
        problem_end: kept until the program starts, to say that it does not.
    """
    _put_in_place(places, problem_end)
    _reset_signals()
    os.setsid()
    os.umask(0o077)
    _offer_to_the_oom_killer()
    os.chdir(order["chdir"])
    for name, value in order["rlimits"].items():
        if name == "RLIMIT_NPROC" and order["user"] is None:
            value += tasks_of(os.getuid())  # the kernel counts all that the user has
        _limit(getattr(resource, name), value)
    if order["user"] is not None:
        system.change_user(order["user"])
    if not order["namespaces"]:
        system.gain_no_rights()  # bubblewrap does so itself, once it no longer needs any
    system.die_with_parent()
    if not order["namespaces"] and (refusing := refusing_filter()) is not None:
        system.refuse_calls(refusing)
    os.execve(argv[0], argv, order["env"])


def _pipe_out_of_the_way() -> tuple[int, int]:
    end, low_end = os.pipe()
    high_end = fcntl.fcntl(low_end, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    os.close(low_end)
    return end, high_end


def _put_in_place(places: Mapping[int, int], problem_end: int) -> None:
    """Give descriptors their numbers, and close all others."""
    away = {place: fcntl.fcntl(fd, fcntl.F_DUPFD, OUT_OF_THE_WAY) for place, fd in places.items()}
    for place, fd in away.items():
        os.dup2(fd, place)
    for name in os.listdir("/proc/self/fd" if system.LINUX else "/dev/fd"):
        if int(name) not in (*places, problem_end):
            with suppress(OSError):  # the folder's own
                os.close(int(name))


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        with suppress(OSError, ValueError):  # some cannot be set
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _offer_to_the_oom_killer() -> None:
    """Short of memory, the kernel shall take this and not the training beside it."""
    if system.LINUX:
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as mine:
            mine.write("1000")


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (OSError, ValueError):  # macOS has some of them in name only
        if system.LINUX:
            raise
