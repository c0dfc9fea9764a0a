"""A sandbox: programs that nobody has read, run apart and within limits."""

import asyncio
import os
import warnings
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Literal

from mint.recipe.cores import usable_cores
from mint.recipe.exceptions import ConfigurationError, DataValidationError, SandboxError
from mint.recipe.forks import forget_in_forks
from mint.recipe.promises import resolved
from mint.recipe.sandbox import backends
from mint.recipe.sandbox.execution import Stop, execute
from mint.recipe.sandbox.isolation import Isolation, WeakIsolationWarning, weaknesses
from mint.recipe.sandbox.keeper import Keeper
from mint.recipe.sandbox.launch import Program
from mint.recipe.sandbox.limits import Limits, Result
from mint.recipe.sandbox.program_files import Files, checked_files

PYTHON = ("python3", "-E", "-s", "-S", "-B")
"""Python with its standard library only, which starts in half the time. ("python3",) has the packages
that are installed beside that interpreter."""

DESCRIPTORS_A_RUN = 16
"""Pipes, selector, and some files; each file that is handed over to bubblewrap is one more."""


class Sandbox:
    """Runs programs apart from this machine; more than fit at once wait for their turn.

    May be used from several event loops and threads, and in a fork, which has programs of its own.
    `close`, or leaving it as a context manager, ends what still runs.

    Attributes:
        backend: the name of the backend in use.
        isolates: what a program is kept from; what is not in it is possible.
        max_running: how many programs run at once.
    """

    def __init__(
        self,
        backend: Literal["auto", "bubblewrap", "subprocess"] = "auto",
        *,
        max_running: int | None = None,
        python: str | None = None,
        readable: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        """Choose a backend, once it has run a program here (about 0.1 s, once a process).

        Args:
            backend: "bubblewrap" keeps programs from everything, and is refused where it does not
                work. "subprocess" runs them as plain processes, which keeps them from little.
                "auto" is the first that works. With "subprocess", chosen or fallen back to, a
                WeakIsolationWarning says what programs can do.
            max_running: None: as many as this process may use cores.
            python: the interpreter that "python3" is inside; None: the one that runs this, without
                the packages of its environment (for root, the first one that others can run).
            readable: folders that programs may read besides the system's, under the same name.

        Raises:
            SandboxError: the backend does not work here; the message says why.
        """
        if max_running is not None and max_running < 1:
            raise ConfigurationError(f"max_running={max_running}: at least one must run.")
        chosen = backends.choose(
            backend, python=python, readable=tuple(os.path.realpath(path) for path in readable)
        )
        self._backend = chosen.backend
        self.backend = chosen.backend.name
        self.isolates: frozenset[Isolation] = chosen.backend.isolates
        self.max_running = max_running or usable_cores()
        _check_descriptors_suffice(self.max_running)
        self._keeper = Keeper()
        weakref.finalize(self, self._keeper.close)
        self.forget()
        forget_in_forks(self)
        self._closed = False
        if missing := weaknesses(self.isolates):
            because = f" ({chosen.why_not_better})" if chosen.why_not_better else ""
            warnings.warn(
                f"Programs run as plain processes{because}. They can: {'; '.join(missing)}. "
                "Install bubblewrap where code comes from a model.",
                WeakIsolationWarning,
                stacklevel=2,
            )

    async def run(
        self,
        files: Files,
        command: Sequence[str],
        limits: Limits | None = None,
        *,
        stdin: str | bytes = b"",
        variables: Mapping[str, str] | None = None,
    ) -> Result:
        """Run one program in a fresh folder, and wait for its end. Nothing of it is left then.

        Cancelling this ends the program.

        Args:
            files: what lies in the folder, where the program starts.
            command: program and arguments, such as (*PYTHON, "main.py"); no shell reads it.
            limits: None: the defaults of Limits.
            stdin: all that it can read there; then comes the end.
            variables: added to its environment, which has PATH, HOME, TMPDIR and LANG only.

        Raises:
            DataValidationError: names of files lead elsewhere, or the command cannot be one.
            SandboxError: the program could not be started. What it does itself never raises.
        """
        if self._closed:
            raise SandboxError("This sandbox is closed. Make another, or close it later.")
        limits = limits or Limits()
        program = Program(
            files=checked_files(files, limits),
            command=_checked_command(command),
            limits=limits,
            stdin=stdin.encode("utf-8", "surrogatepass")
            if isinstance(stdin, str)
            else bytes(stdin),
            variables=_checked_variables(variables or {}),
        )
        return await self._in_turn(program)

    async def _in_turn(self, program: Program) -> Result:
        loop = asyncio.get_running_loop()
        stop = Stop(is_wanted=lambda: not loop.is_closed())
        self._running.add(stop)
        future = self._threads.submit(execute, self._backend, self._keeper, program, stop)
        future.add_done_callback(lambda _: self._running.discard(stop))
        try:
            return await resolved(future)
        except asyncio.CancelledError:
            stop.set()
            if not future.cancel():  # it runs: wait for its end, which is milliseconds away
                with suppress(Exception, asyncio.CancelledError):
                    await resolved(future)
            raise
        finally:
            stop.set()
            future.cancel()

    def forget(self) -> None:
        """Begin anew, as in a fork: what runs is the parent's, and so are its threads."""
        self._running: set[Stop] = set()
        self._threads = ThreadPoolExecutor(self.max_running, thread_name_prefix="mint-sandbox")

    def close(self) -> None:
        """End what runs and wait for it (milliseconds); what waits for its turn is cancelled."""
        self._closed = True
        for stop in list(self._running):
            stop.set()
        self._threads.shutdown(cancel_futures=True)
        self._keeper.close()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "Sandbox":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


def _check_descriptors_suffice(max_running: int) -> None:
    try:
        import resource
    except ImportError:
        return  # Windows: every backend says that it does not work there
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and max_running * DESCRIPTORS_A_RUN > most:
        raise ConfigurationError(
            f"max_running={max_running} needs about {max_running * DESCRIPTORS_A_RUN} file descriptors, and "
            f"this process may have {most}. Raise that (ulimit -n), or let at most "
            f"{most // DESCRIPTORS_A_RUN} run at once."
        )


def _checked_command(command: Sequence[str]) -> tuple[str, ...]:
    if isinstance(command, str) or not command:
        raise DataValidationError(
            f"command={command!r}: give program and arguments one by one, such as ('python3', 'main.py')."
        )
    for text in command:
        if not isinstance(text, str) or "\0" in text:
            raise DataValidationError(f"command has {text!r}; give texts without NUL characters.")
    return tuple(command)


def _checked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise DataValidationError(f"variables: {name!r}={value!r} cannot be one.")
    return dict(variables)
