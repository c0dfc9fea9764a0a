"""The Python that programs run with, and whether their user can reach it."""

import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which

from mint.recipe.exceptions import SandboxError


@dataclass(frozen=True)
class Interpreter:
    """An interpreter as programs find it; its packages are its own, not those of an environment."""

    executable: str
    prefix: str
    """The folder with its library."""


@cache
def interpreter(wanted: str | None, *, as_other_user: bool) -> Interpreter:
    """The wanted interpreter, or the first that the programs' user can run.

    Args:
        wanted: path; None: the one that runs this, else a python3 of the system.
        as_other_user: programs run under a user of their own, who cannot enter a folder such as
            /root.

    Raises:
        SandboxError: there is none.
    """
    system = [which("python3"), "/usr/local/bin/python3", "/usr/bin/python3"]
    tried = []
    for path in [wanted] if wanted else [sys.executable, *system]:
        found = _ask(path) if path else None
        if found and (not as_other_user or _everybody_reaches(found)):
            return found
        tried.append(str(path))
    raise SandboxError(
        f"No Python that programs in the sandbox can run: tried {', '.join(dict.fromkeys(tried))}. "
        + (
            "They run as a user of their own, who must be able to enter each folder on the way to "
            "it; /root lets nobody in. Install Python under /usr or /opt and name it: "
            "Sandbox(python='/opt/python/bin/python3')."
            if as_other_user
            else "Name one: Sandbox(python='/usr/bin/python3')."
        )
    )


def _ask(path: str) -> Interpreter | None:
    """Where an interpreter really lies: what a link, a shim or an environment stands for."""
    question = "import sys; print(sys.base_prefix); print(sys._base_executable)"
    try:
        told = subprocess.run(
            [path, "-I", "-S", "-c", question], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    prefix, _, executable = told.stdout.strip().partition("\n")
    return Interpreter(executable, prefix) if told.returncode == 0 and executable else None


def _everybody_reaches(found: Interpreter) -> bool:
    return all(_is_open_to_all(Path(path)) for path in (found.executable, found.prefix))


def _is_open_to_all(path: Path) -> bool:
    """Whether any user may enter every folder on the way, links followed, and execute the end."""
    try:
        real = path.resolve(strict=True)
        return all(os.stat(step).st_mode & stat.S_IXOTH for step in (real, *real.parents))
    except OSError:
        return False
