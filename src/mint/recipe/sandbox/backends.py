"""Which backend works here: each is asked to run a program before it is trusted with one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from mint.recipe.exceptions import ConfigurationError, SandboxError
from mint.recipe.sandbox import bubblewrap, processes
from mint.recipe.sandbox.execution import Stop, execute
from mint.recipe.sandbox.keeper import Keeper
from mint.recipe.sandbox.launch import Backend, Program
from mint.recipe.sandbox.limits import Limits

_KINDS: dict[str, tuple[ModuleType, type]] = {
    "bubblewrap": (bubblewrap, bubblewrap.Bubblewrap),
    "subprocess": (processes, processes.Processes),
}


@dataclass(frozen=True)
class Chosen:
    """A backend that works."""

    backend: Backend
    why_not_better: str | None
    """Why one that isolates more was passed over."""


def choose(wanted: str, *, python: str | None, readable: Sequence[str]) -> Chosen:
    """The backend that was asked for; with "auto" the first that works.

    Raises:
        SandboxError: none of them works here.
    """
    if wanted not in (*_KINDS, "auto"):
        raise ConfigurationError(
            f"backend={wanted!r} is unknown; there are 'auto', {', '.join(map(repr, _KINDS))}."
        )
    reasons = []
    for name in _KINDS if wanted == "auto" else [wanted]:
        tried = _tried(name, python, tuple(readable))
        if not isinstance(tried, str):
            return Chosen(tried, "; ".join(reasons) or None)
        reasons.append(tried)
    raise SandboxError(f"No sandbox here: {'; '.join(reasons)}.")


@cache
def _tried(name: str, python: str | None, readable: tuple[str, ...]) -> Backend | str:
    """A backend that has just run a program, or why it cannot."""
    module, kind = _KINDS[name]
    if (why := module.missing()) is not None:
        return why
    keeper = Keeper()
    try:
        backend = kind(python=python, readable=readable)
        result = execute(backend, keeper, _TRIAL, Stop())
    except (SandboxError, OSError) as error:
        return f"{name} does not work here: {error}"
    finally:
        keeper.close()
    if result.stdout != "works\n":
        return f"{name} does not work here: {result}"
    return backend


_TRIAL = Program(
    files={"trial.py": b"print('works')"},
    command=("python3", "-I", "-S", "trial.py"),
    limits=Limits(wall_s=60.0, cpu_s=20.0),
    stdin=b"",
    variables={},
)
