"""Whatever happens to us, nothing of a program stays: no process, no zombie, no mount, no file."""

import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.recipe.sandbox.programs import processes_with, programs_with, python, token, until

from mint.recipe.sandbox import PYTHON, Limits, Result, Sandbox, SandboxError
from mint.recipe.tasks import run_together

SLEEPS = "import os, time; os.fork(); time.sleep(600)"


def sleep(sandbox: Sandbox, mark: str) -> Coroutine[Any, Any, Result]:
    return sandbox.run({}, (*PYTHON, "-c", SLEEPS, mark), Limits(wall_s=290.0))


async def until_running(mark: str) -> None:
    await until(lambda: len(programs_with(mark)) == 2, "the program runs")


async def until_gone(mark: str) -> None:
    await until(lambda: not processes_with(mark), "the program is gone")


def keepers() -> list[psutil.Process]:
    """Those that this process has started. Other tests may have left a server below it."""
    return [child for child in psutil.Process().children() if _is_keeper(child)]


def _is_keeper(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has ended meanwhile
        return any("mint.recipe.sandbox.guard" in word for word in process.cmdline())
    return False


def guards() -> list[psutil.Process]:
    """All below the keepers, zombies too: guards, and what they guard."""
    found: list[psutil.Process] = []
    for keeper in keepers():
        with suppress(psutil.Error):
            found += keeper.children(recursive=True)
    return found


def ours() -> list[psutil.Process]:
    return keepers() + guards()


def held() -> tuple[int, int, str]:
    """How many processes and descriptors are ours, and what is mounted."""
    with open("/proc/self/mounts") as mounts:
        return len(ours()), len(os.listdir("/proc/self/fd")), mounts.read()


async def until_guards_are_gone() -> None:
    """A guard reports, then ends."""
    await until(lambda: not guards(), "no guard is left")


async def test_runs_leave_no_process_descriptor_folder_or_mount(sandbox: Sandbox, place: Path):
    await python(sandbox, "pass")
    await until_guards_are_gone()
    before = held()
    await asyncio.gather(*(python(sandbox, SLEEPS.replace("600", "0.1")) for _ in range(8)))
    assert os.listdir(place) == []
    await until_guards_are_gone()
    assert held() == before
    assert [process for process in ours() if process.status() == psutil.STATUS_ZOMBIE] == []


async def test_cancelling_the_wait_ends_the_program_before_it_is_over(sandbox: Sandbox):
    mark = token()
    task = asyncio.create_task(sleep(sandbox, mark))
    await until_running(mark)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_with(mark) == []


async def test_a_time_limit_of_the_callers_own_ends_the_program(sandbox: Sandbox):
    mark = token()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await sleep(sandbox, mark)
    assert processes_with(mark) == []


async def test_a_run_cancelled_while_it_waits_for_its_turn_never_starts(sandbox: Sandbox):
    mark, waiting = token(), token()
    running = [asyncio.create_task(sleep(sandbox, mark)) for _ in range(sandbox.max_running)]
    await until(lambda: len(programs_with(mark)) == 2 * sandbox.max_running, "all run")
    late = asyncio.create_task(sleep(sandbox, waiting))
    await asyncio.sleep(0.05)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert (await python(sandbox, "print('next')")).stdout == "next\n"
    assert processes_with(waiting) == processes_with(mark) == []


async def test_one_failure_beside_it_ends_a_program(sandbox: Sandbox):
    mark = token()

    async def fail() -> Result:
        await until_running(mark)
        raise RuntimeError("beside it")

    with pytest.raises(RuntimeError, match="beside it"):
        await run_together([sleep(sandbox, mark), fail()])
    assert processes_with(mark) == []


async def test_a_loop_that_is_closed_without_a_word_ends_its_program(sandbox: Sandbox):
    mark = token()

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(sleep(sandbox, mark))
        loop.run_until_complete(until_running(mark))
        task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
        loop.close()

    await asyncio.to_thread(abandon)
    gc.collect()
    await until_gone(mark)
    assert (await python(sandbox, "print('next')")).stdout == "next\n"


async def test_a_loop_that_runs_to_its_end_cancels_what_still_runs(sandbox: Sandbox):
    mark = token()

    async def leave_it() -> None:
        task = asyncio.create_task(sleep(sandbox, mark))
        await until_running(mark)
        assert not task.done()

    await asyncio.to_thread(asyncio.run, leave_it())
    assert processes_with(mark) == []


def test_several_loops_share_one_sandbox(sandbox: Sandbox):
    results: list[Result] = []

    async def several(which: int) -> None:
        results.extend(
            await asyncio.gather(*(python(sandbox, f"print({which})") for _ in range(4)))
        )

    threads = [threading.Thread(target=lambda i=i: asyncio.run(several(i))) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.stdout for result in results) == ["0\n"] * 4 + ["1\n"] * 4 + ["2\n"] * 4


@pytest.mark.filterwarnings("ignore::mint.recipe.sandbox.WeakIsolationWarning")
async def test_closing_a_sandbox_ends_what_runs_and_its_keeper(sandbox: Sandbox):
    mark, children = token(), len(ours())
    own = Sandbox(sandbox.backend, max_running=1)  # pyright: ignore[reportArgumentType]
    running = asyncio.create_task(sleep(own, mark))
    waiting = asyncio.create_task(sleep(own, mark))
    await until_running(mark)
    await asyncio.to_thread(own.close)
    assert processes_with(mark) == []
    ended, never_started = await asyncio.gather(running, waiting, return_exceptions=True)
    assert isinstance(ended, Result)
    assert (ended.signal, ended.killed_by) == (9, None)
    assert isinstance(never_started, asyncio.CancelledError)
    await until(lambda: len(ours()) <= children, "its keeper is gone")
    with pytest.raises(SandboxError, match="closed"):
        await python(own, "pass")
    own.close()  # again is fine


def above_free_descriptors(count: int) -> int:
    """The number below which this many descriptors are free."""
    used = set(map(int, os.listdir("/proc/self/fd")))
    return next(n for n in range(count, 10_000) if n - sum(fd < n for fd in used) == count)


async def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, child, 0)


async def test_a_fork_of_ours_does_not_keep_a_program_from_being_ended(sandbox: Sandbox):
    mark = token()
    task = asyncio.create_task(sleep(sandbox, mark))
    await until_running(mark)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 60)
        assert processes_with(mark) == []
    finally:
        await end(child)


@pytest.mark.filterwarnings("ignore::mint.recipe.sandbox.WeakIsolationWarning")
async def test_a_fork_does_not_keep_the_keeper_of_its_parent(sandbox: Sandbox):
    own = Sandbox(sandbox.backend)  # pyright: ignore[reportArgumentType]
    await python(own, "pass")
    keeper = own._keeper._process
    assert keeper is not None
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        await asyncio.to_thread(own.close)
        assert keeper.returncode == 0  # it went by itself, and was not killed
    finally:
        await end(child)


async def test_a_fork_of_ours_runs_programs_of_its_own(sandbox: Sandbox):
    await python(sandbox, "pass")
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        told: list[Result] = []
        run = threading.Thread(target=lambda: told.append(asyncio.run(python(sandbox, "print(1)"))))
        run.start()
        run.join()
        sandbox.close()
        os._exit(0 if told[0].stdout == "1\n" else 1)
    assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
    assert (await python(sandbox, "print('next')")).stdout == "next\n"


@pytest.mark.filterwarnings("ignore::mint.recipe.sandbox.WeakIsolationWarning")
async def test_without_free_descriptors_runs_are_refused_and_leave_nothing(
    sandbox: Sandbox, place: Path
):
    with Sandbox(sandbox.backend, max_running=20) as own:  # pyright: ignore[reportArgumentType]
        await python(own, "pass")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (above_free_descriptors(60), limits[1]))
        try:
            runs = (python(own, "import time; time.sleep(0.2)") for _ in range(20))
            results = await asyncio.gather(*runs, return_exceptions=True)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    refused = [result for result in results if not isinstance(result, Result)]
    assert refused
    assert [str(error) for error in refused if not isinstance(error, SandboxError)] == []
    assert os.listdir(place) == []


OWNER = """
import asyncio, signal, sys, warnings
from mint.recipe.sandbox import PYTHON, Limits, Sandbox
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
warnings.simplefilter("ignore")
backend, program, mark = sys.argv[1:]
command = (*PYTHON, "-c", program, mark)
asyncio.run(Sandbox(backend).run({"f": "x"}, command, Limits(wall_s=300)))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_the_death_of_its_owner_ends_a_program(
    sandbox: Sandbox, number: signal.Signals, place: Path
):
    mark = token()
    script = textwrap.dedent(OWNER)
    command = [sys.executable, "-c", script, sandbox.backend, SLEEPS, mark]
    owner = await asyncio.to_thread(subprocess.Popen, command, stderr=subprocess.PIPE)
    try:
        await until(lambda: len(programs_with(mark)) == 3, "the program runs, and its owner")
        owner.send_signal(number)
        await asyncio.to_thread(owner.wait)
        await until_gone(mark)
        await until(lambda: os.listdir(place) == [], "its folder is removed")
        assert owner.stderr is not None
        assert b"guard" not in await asyncio.to_thread(
            owner.stderr.read
        )  # it has nothing to complain of
    finally:
        owner.kill()
        owner.wait()


async def test_a_guard_that_is_killed_takes_the_program_with_it(sandbox: Sandbox):
    mark = token()
    task = asyncio.create_task(sleep(sandbox, mark))
    await until_running(mark)
    guard = _guard_of(mark)
    guard.kill()
    result = await task
    assert (result.killed_by, result.exit_code) == ("guard_lost", None)
    if sandbox.backend == "subprocess":  # what a plain process has forked only its guard would find
        await until(lambda: len(processes_with(mark)) == 1, "the program is gone")
        processes_with(mark)[0].kill()
    await until_gone(mark)
    assert (await python(sandbox, "print('next')")).stdout == "next\n"


def _guard_of(mark: str) -> psutil.Process:
    own = {process.pid: process for process in ours()}
    program = next(process for process in ours() if mark in process.cmdline())
    while mark in program.cmdline():
        program = own[program.ppid()]
    return program


async def test_a_keeper_that_is_killed_is_replaced(sandbox: Sandbox):
    await python(sandbox, "pass")
    for keeper in keepers():  # those of other sandboxes, too
        keeper.kill()
        keeper.wait(60)
    assert (await python(sandbox, "print('next')")).stdout == "next\n"


async def test_a_guard_that_does_not_start_is_no_doing_of_the_programs(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sandbox._keeper, "start_guard", lambda _: None)
    with pytest.raises(SandboxError, match="no guard for it started"):
        await python(sandbox, "pass")
