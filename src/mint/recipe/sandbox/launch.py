"""What a backend makes of a program: an order to the guard, and what must be open or exist meanwhile."""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from mint.recipe.sandbox.interpreter import Interpreter
from mint.recipe.sandbox.isolation import Isolation
from mint.recipe.sandbox.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Program:
    """What somebody wants to run, checked."""

    files: Mapping[str, bytes]
    command: Sequence[str]
    limits: Limits
    stdin: bytes
    variables: Mapping[str, str]


FIRST_INHERITED = 10
"""Above those that the guard itself needs."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the guard is told, as JSON: how to start the program, and when to end it."""

    argv: Sequence[str]
    env: Mapping[str, str]
    chdir: str
    user: int | None
    """The user to become, with a group of the same number; None: stay."""
    first_inherited: int = FIRST_INHERITED
    """The number that the first of `Launch.inherited` has in the program; the others follow it."""
    rlimits: Mapping[str, int]
    """Name in the module `resource` -> limit, set before the program starts."""
    namespaces: Mapping[str, int] | None
    """With bubblewrap: the limits to be set inside, once it has put up its walls."""
    folder: str
    """The program's private folder, as it is called where the program is."""
    limits: Limits
    """Those that are watched are read from here."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """An order with the files that go with it."""

    order: Order
    inherited: Sequence[int] = ()
    """File descriptors the program keeps besides 0, 1 and 2."""


class Backend(Protocol):
    """A way to run programs apart."""

    name: str
    isolates: frozenset[Isolation]

    def launch(self, program: Program) -> AbstractContextManager[Launch]:
        """Prepare a run; leaving the context removes what it needed."""
        ...


def kernel_limits(limits: Limits) -> dict[str, int]:
    """What the kernel shall refuse to each process, before namespaces or users come into it."""
    return {
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_FSIZE": limits.disk_bytes,
        # Only should the guard be stopped: it watches the sum over all processes.
        "RLIMIT_CPU": math.ceil(limits.cpu_s) + 1,
        "RLIMIT_CORE": 0,
    }


def environment(
    python: Interpreter, own: Mapping[str, str], *, home: str, temporary: str
) -> dict[str, str]:
    """All the environment variables that a program gets, with those that its caller adds."""
    path = f"{os.path.dirname(python.executable)}:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "HOME": home, "TMPDIR": temporary, "LANG": "C.UTF-8", **own}
