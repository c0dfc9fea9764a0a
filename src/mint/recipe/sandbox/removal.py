"""Removing a folder that a program was free to fill as it liked."""

import os
import stat
from pathlib import Path

_AS_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def remove_tree(top: Path) -> None:
    """Remove a folder whose processes are gone, however deep it is and whatever its modes are.

    Walks down and up by one descriptor, so no path grows and nothing is called again from within:
    shutil.rmtree fails where folders lie a thousand deep. No link is followed. A folder that is not
    there is fine.
    """
    if not top.is_dir():
        return
    here = _entered(str(top), None)
    try:
        names: list[str] = []  # from the top down to here
        left = [_without_files(here)]  # for each of these levels, the folders not yet seen
        while left:
            if left[-1]:
                names.append(left[-1].pop())
                here = _moved(here, names[-1])
                left.append(_without_files(here))
            else:
                left.pop()
                if names:
                    here = _moved(here, "..")
                    os.rmdir(names.pop(), dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(top)


def _without_files(folder: int) -> list[str]:
    """Remove all of a folder but its folders; returns their names."""
    with os.scandir(folder) as listed:
        entries = list(listed)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=folder)
    return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _moved(here: int, name: str) -> int:
    there = _entered(name, here)
    os.close(here)
    return there


def _entered(name: str, above: int | None) -> int:
    try:
        there = os.open(name, _AS_FOLDER, dir_fd=above)
    except PermissionError:  # not for root, who could be led by a link here, were a process left
        os.chmod(name, stat.S_IRWXU, dir_fd=above)
        there = os.open(name, _AS_FOLDER, dir_fd=above)
    os.fchmod(there, stat.S_IRWXU)
    return there
