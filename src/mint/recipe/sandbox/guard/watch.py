"""What a program and all its processes use, as /proc tells it. Elsewhere than on Linux: nothing."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

PAGE_BYTES = resource.getpagesize()
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CPU, _TASKS, _PAGES = slice(11, 15), 17, 21
"""Places in /proc/PID/stat after the name: own and waited-for children's processor time, threads,
resident pages."""


@dataclass(frozen=True)
class Usage:
    """Of all the guard's descendants together."""

    tasks: int
    """Processes and threads alive."""
    memory_bytes: int
    """Resident now. Pages that two share count twice."""
    cpu_s: float
    """With those that have ended."""


def usage() -> Usage:
    """What the processes below this one use."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    tasks, pages, cpu_s = 0, 0, gone.ru_utime + gone.ru_stime
    for pid in descendants():
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
            told = stat.read().rpartition(b")")[2].split()
            cpu_s += sum(map(int, told[_CPU])) / _TICKS_PER_S
            tasks += int(told[_TASKS])
            pages += int(told[_PAGES])
    return Usage(tasks, pages * PAGE_BYTES, cpu_s)


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
    """How many entries lie below a folder, and their bytes on disk; counting ends above `most`."""
    files, size, to_see = 0, 0, [folder]
    while to_see and files <= most:
        with suppress(OSError), os.scandir(to_see.pop()) as entries:
            for entry in entries:
                files += 1
                if files > most:
                    break
                with suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        to_see.append(entry.path)
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
