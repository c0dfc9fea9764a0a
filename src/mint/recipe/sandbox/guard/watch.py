"""What a program and all its processes use, as /proc tells it. Elsewhere than on Linux: nothing."""

import errno
import itertools
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

PAGE_BYTES = resource.getpagesize()
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_OWN_CPU, _CPU, _TASKS, _START, _PAGES = slice(11, 13), slice(11, 15), 17, 19, 21
"""Places in /proc/PID/stat after the name: own processor time, the same with that of waited-for children,
threads, time of the start, resident pages."""


@dataclass(frozen=True)
class Usage:
    """Of all the guard's descendants together."""

    tasks: int
    """Processes and threads alive."""
    memory_bytes: int
    """Resident now. Pages that two share count twice."""
    cpu_s: float
    """With those that have ended and were waited for."""
    own_cpu_s: Mapping[tuple[int, int], float]
    """Of each one alive by itself: (process number, time of its start) -> seconds."""


def usage() -> Usage:
    """What the processes below this one use."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    tasks, pages, cpu_s = 0, 0, gone.ru_utime + gone.ru_stime
    own_cpu_s: dict[tuple[int, int], float] = {}
    for pid in descendants():
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
            told = stat.read().rpartition(b")")[2].split()
            cpu_s += sum(map(int, told[_CPU])) / _TICKS_PER_S
            own_cpu_s[pid, int(told[_START])] = sum(map(int, told[_OWN_CPU])) / _TICKS_PER_S
            tasks += int(told[_TASKS])
            pages += int(told[_PAGES])
    return Usage(tasks, pages * PAGE_BYTES, cpu_s, own_cpu_s)


MOST_REMEMBERED = 10_000
"""Processes, most of which have ended."""


class CpuMeter:
    """Processor time up to now, also of processes that nobody waited for.

    The kernel adds what an ended process has used to the parent that waits for it. Where a parent
    ignores SIGCHLD, there is none, and what was seen last has to do.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], float] = {}
        self._seen_s = 0.0
        self.most_s = 0.0

    def seconds(self, used: Usage) -> float:
        """The total, with what has just been seen. A process may be missed by one look, and be in the next."""
        for who, own_s in used.own_cpu_s.items():
            self._seen_s += own_s - self._last.get(who, 0.0)
            self._last[who] = own_s
        if len(self._last) > MOST_REMEMBERED:
            self._last = dict(used.own_cpu_s)
        self.most_s = max(self.most_s, used.cpu_s, self._seen_s)
        return self.most_s


def descendants() -> Iterator[int]:
    """Every process below this one."""
    below = [os.getpid()]
    while below:
        found = _children(below.pop())
        yield from found
        below += found


def _children(pid: int) -> list[int]:
    children = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as listed:
                children += map(int, listed.read().split())
    return children


def tasks_of(user: int) -> int:
    """How many processes and threads a user has now."""
    count = 0
    with suppress(FileNotFoundError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def folder_usage(folder: str, most: int) -> tuple[int, int]:
    """How many entries lie below a folder, and their bytes on disk; counting ends above `most`.

    What lies too deep for a path cannot be counted, and counts as more than `most`.
    """
    files, size, to_see = 0, 0, [folder]
    while to_see and files <= most:
        try:
            with os.scandir(to_see.pop()) as entries:
                for entry in itertools.islice(entries, most + 1 - files):
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        to_see.append(entry.path)
                    with suppress(FileNotFoundError):  # gone meanwhile
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError as error:  # others: gone meanwhile, or closed to us
            if error.errno == errno.ENAMETOOLONG:
                return most + 1, size
    return files, size


def mounted_files(pid: int, folder: str, size_bytes: int) -> int:
    """How many files lie in a folder that is a file system of its own, seen from process `pid`.

    Args:
        size_bytes: of that file system. One that is larger is the machine's own: the folder is not
            mounted yet, and the answer 0.
    """
    try:
        mounted = os.statvfs(f"/proc/{pid}/root{folder}")
    except OSError:  # not set up yet, or over
        return 0
    if mounted.f_blocks * mounted.f_frsize > size_bytes + PAGE_BYTES:
        return 0
    return mounted.f_files - mounted.f_ffree
