"""Running Python texts in a sandbox, and looking for what they leave behind."""

import asyncio
import textwrap
import uuid
from collections.abc import Callable

import psutil
import pytest

from mint.recipe.sandbox import PYTHON, Isolation, Limits, Result, Sandbox

PATIENT = Limits(wall_s=60.0, cpu_s=60.0)
"""For programs whose end is not in question: the machine may be busy."""


async def python(
    sandbox: Sandbox,
    source: str,
    limits: Limits = PATIENT,
    *arguments: str,
    stdin: str | bytes = b"",
) -> Result:
    """Run a text as main.py."""
    files = {"main.py": textwrap.dedent(source)}
    return await sandbox.run(files, (*PYTHON, "main.py", *arguments), limits, stdin=stdin)


def needs(sandbox: Sandbox, *isolations: Isolation) -> None:
    """Skip where the backend says of itself that it does not see to this."""
    if missing := set(isolations) - sandbox.isolates:
        pytest.skip(f"{sandbox.backend} here does not see to {', '.join(sorted(missing))}")


def token() -> str:
    """An argument by which a program, and what it forks, can be found."""
    return f"token-{uuid.uuid4().hex}"


def processes_with(mark: str) -> list[psutil.Process]:
    """All processes of the machine with this argument; zombies have none, see `children`."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def programs_with(mark: str) -> list[psutil.Process]:
    """The same, without bubblewrap's own, whose arguments have the program's in them."""
    return [process for process in processes_with(mark) if process.name() != "bwrap"]


async def until(happened: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does."""
    for _ in range(1200):
        if happened():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within a minute: {what}")
