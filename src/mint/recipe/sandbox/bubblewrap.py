"""Programs behind bubblewrap: namespaces of their own, and a file system with next to nothing in it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from shutil import which

from mint.recipe.sandbox.guard.namespaces import SHARED_MEMORY, SHARED_MEMORY_BYTES
from mint.recipe.sandbox.interpreter import Interpreter, interpreter
from mint.recipe.sandbox.isolation import Isolation
from mint.recipe.sandbox.launch import (
    FIRST_INHERITED,
    Launch,
    Order,
    Program,
    environment,
    kernel_limits,
)
from mint.recipe.sandbox.refused_calls import refusing_filter
from mint.recipe.sandbox.users import can_choose_user, user_of_its_own

PROGRAM = "bwrap"
FOLDER = "/tmp/work"
INNER_USER = 65534
"""Who the program believes to be: nobody."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/etc/alternatives")  # fmt: skip
"""What programs and their libraries need; those that exist."""


class Bubblewrap:
    """No network, no files but the system's programs, no view of other processes."""

    name = "bubblewrap"
    isolates = frozenset(Isolation)

    def __init__(self, *, python: str | None, readable: Sequence[str]) -> None:
        self.has_own_users = can_choose_user()
        self.interpreter = interpreter(python, as_other_user=self.has_own_users)
        self.program = which(PROGRAM) or PROGRAM
        self._walls = _walls(self.program, self.interpreter, readable)

    @contextmanager
    def launch(self, program: Program) -> Iterator[Launch]:
        limits = program.limits
        with ExitStack() as open_meanwhile:
            user = open_meanwhile.enter_context(user_of_its_own()) if self.has_own_users else None
            contents = list(program.files.values())
            inside = _room(limits.disk_bytes, list(program.files))
            if (refusing := refusing_filter()) is not None:
                inside += ["--seccomp", str(FIRST_INHERITED + len(contents))]
                contents.append(refusing)
            inherited = [open_meanwhile.enter_context(_in_memory(one)) for one in contents]
            told = Order(
                limits=limits,
                argv=[
                    self.program,
                    *self._walls,
                    *inside,
                    "--",
                    *program.command,
                ],
                env=environment(self.interpreter, program.variables, home=FOLDER, temporary="/tmp"),
                chdir="/",
                user=user,
                rlimits=kernel_limits(limits),
                namespaces={
                    "RLIMIT_NPROC": limits.processes + 1,  # bubblewrap's own process 1
                    "RLIMIT_NOFILE": limits.open_files,
                },
                folder="/tmp",
            )
            yield Launch(order=told, inherited=inherited)


def _walls(program: str, python: Interpreter, readable: Sequence[str]) -> list[str]:
    """The arguments that are the same for every program."""
    walls = ["--unshare-all", "--unshare-user", "--uid", str(INNER_USER), "--gid", str(INNER_USER)]
    if "--disable-userns" in _help(program):  # since 0.8: fewer doors into the kernel
        walls.append("--disable-userns")
    walls += ["--cap-drop", "ALL", "--new-session", "--die-with-parent", "--hostname", "sandbox"]
    for path in SYSTEM:
        walls += _shown(path)
    for path in (python.prefix, *readable):
        if not any(Path(path).is_relative_to(shown) for shown in SYSTEM):
            walls += ["--ro-bind", path, path]
    walls += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    return [*walls, "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", SHARED_MEMORY]


def _room(size_bytes: int, names: Sequence[str]) -> list[str]:
    """The one place that can be written, with the program's files in it."""
    room = ["--size", str(size_bytes), "--tmpfs", "/tmp", "--dir", FOLDER]
    for content, name in enumerate(names, FIRST_INHERITED):
        room += ["--perms", "0644", "--file", str(content), f"{FOLDER}/{name}"]
    return [*room, "--chdir", FOLDER, "--remount-ro", "/"]


def _shown(path: str) -> list[str]:
    if os.path.islink(path):
        return ["--symlink", os.readlink(path), path]
    return ["--ro-bind", path, path] if os.path.exists(path) else []


@contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    """A descriptor from which the content can be read."""
    fd = os.memfd_create("file")
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


@cache
def _help(program: str) -> str:
    try:
        return subprocess.run(
            [program, "--help"], capture_output=True, text=True, timeout=20
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def missing() -> str | None:
    """Why bubblewrap cannot be tried here, if it cannot."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux; this is {sys.platform}"
    if which(PROGRAM) is None:
        return "bubblewrap is not installed (Debian: apt-get install bubblewrap)"
    return None
