"""Programs as plain processes: limits of the kernel, an empty environment, a folder of their own.

That holds off accidents, and little else. Where we are root, each program runs as a user of its own,
which holds off much more.
"""

import errno
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import which

from mint.recipe.exceptions import SandboxError
from mint.recipe.sandbox.interpreter import interpreter
from mint.recipe.sandbox.isolation import Isolation
from mint.recipe.sandbox.launch import Launch, Order, Program, environment, kernel_limits
from mint.recipe.sandbox.program_files import write_files
from mint.recipe.sandbox.removal import remove_tree
from mint.recipe.sandbox.users import can_choose_user, user_of_its_own

REMOVE_S = 60.0


class Processes:
    """What each system can do. `isolates` says how little that is, and depends on who we are."""

    name = "subprocess"

    def __init__(self, *, python: str | None, readable: Sequence[str]) -> None:
        del readable  # nothing is hidden, so nothing needs to be shown
        self.has_own_users = can_choose_user()
        self.interpreter = interpreter(python, as_other_user=self.has_own_users)
        self.isolates = frozenset(_isolates(own_users=self.has_own_users))

    @contextmanager
    def launch(self, program: Program) -> Iterator[Launch]:
        limits = program.limits
        with ExitStack() as meanwhile:
            user = meanwhile.enter_context(user_of_its_own()) if self.has_own_users else None
            folder = meanwhile.enter_context(_private_folder())
            write_files(program.files, folder)
            if user is not None:
                _give_to(user, folder)
            place = str(folder)
            variables = environment(
                self.interpreter, program.variables, home=place, temporary=place
            )
            told = Order(
                limits=limits,
                argv=[_found(program.command[0], variables["PATH"], folder), *program.command[1:]],
                env=variables,
                chdir=place,
                user=user,
                rlimits={
                    **kernel_limits(limits),
                    "RLIMIT_NPROC": limits.processes,
                    "RLIMIT_NOFILE": limits.open_files,
                },
                namespaces=None,
                folder=place,
            )
            yield Launch(order=told)


def _isolates(*, own_users: bool) -> Iterator[Isolation]:
    yield Isolation.ENVIRONMENT
    if own_users:
        yield from (Isolation.SIGNALS, Isolation.LEFTOVERS, Isolation.PROCESS_COUNT)


@contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mint-sandbox-")).resolve()
    try:
        yield folder
    finally:
        _remove(folder)  # the guard has, unless it never came to that


def _remove(folder: Path) -> None:
    """Remove it, also where all file descriptors are in use for a while."""
    give_up = time.monotonic() + REMOVE_S
    while True:
        try:
            return remove_tree(folder)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() > give_up:
                raise
        time.sleep(0.05)


def _give_to(user: int, folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user)


def _found(command: str, path: str, folder: Path) -> str:
    if "/" in command:
        return str(folder / command)  # an absolute one stays as it is
    found = which(command, path=path)
    if found is None:
        raise SandboxError(f"The command {command!r} is not found in {path}.")
    return found


def missing() -> str | None:
    """Why programs cannot run as processes here, if they cannot."""
    if sys.platform == "win32":
        return "Windows has none of what the sandbox is made of; use WSL or a container"
    return None
