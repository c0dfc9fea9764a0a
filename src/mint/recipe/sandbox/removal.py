"""Removing a folder that a program was free to fill as it liked."""

import os
import secrets
import stat
from pathlib import Path


def remove_tree(top: Path) -> None:
    """Remove a folder whose processes are gone, however deep it is and whatever its modes are.

    Folders are moved up to the top before they are looked into, so no path grows and nothing is
    called again from within: shutil.rmtree fails where folders lie a thousand deep. No link is followed.
    A folder that is not there is fine.
    """
    if not top.is_dir():
        return
    while True:
        folders = []
        _open_up(top)
        for entry in _entries(top):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                os.unlink(entry.path)
        if not folders:
            break
        for folder in folders:
            _open_up(folder)
            for entry in _entries(folder):
                if entry.is_dir(follow_symlinks=False):
                    _open_up(entry.path)  # a folder that cannot be written cannot be moved
                    os.rename(entry.path, top / secrets.token_hex(16))
                else:
                    os.unlink(entry.path)
            os.rmdir(folder)
    os.rmdir(top)


def _open_up(folder: "str | Path") -> None:
    os.chmod(folder, stat.S_IRWXU)


def _entries(folder: "str | Path") -> list["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        return list(entries)
