"""Coroutines run to their end by plain calls."""

import asyncio
import contextvars
import signal
import threading
from typing import Any

import pytest

from mint.rl_core.running import away_from_loop, run_to_end

WORD: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="none")


async def value() -> tuple[str, str]:
    await asyncio.sleep(0)
    return WORD.get(), threading.current_thread().name


def test_in_a_script_it_runs_in_the_same_thread():
    assert run_to_end(value) == ("none", threading.current_thread().name)


def test_where_a_loop_runs_it_runs_in_a_thread_with_the_callers_context():
    async def cell() -> tuple[str, str]:
        WORD.set("told")
        return run_to_end(value)

    assert asyncio.run(cell()) == ("told", "mint-rl-core")


def test_an_error_is_raised_as_itself():
    async def fail() -> None:
        raise KeyError("mine")

    async def cell() -> None:
        run_to_end(fail)

    for run in (lambda: run_to_end(fail), lambda: asyncio.run(cell())):
        with pytest.raises(KeyError, match="mine"):
            run()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_notebook_cell_cancels_what_it_waits_for():
    ended: list[str] = []
    this = threading.current_thread()
    if this is not threading.main_thread() or this.ident is None:
        pytest.skip("only the main thread is interrupted")

    async def wait() -> None:
        threading.Timer(0.05, signal.pthread_kill, (this.ident, signal.SIGINT)).start()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("cleaned up")

    async def cell() -> None:
        run_to_end(wait)

    loop = asyncio.new_event_loop()  # as a notebook has it: asyncio.run takes interrupts itself
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        loop.close()
    assert ended == ["cleaned up"]


def test_a_plain_call_may_start_a_loop_where_one_runs():
    def starts() -> Any:
        return asyncio.run(value())

    async def program() -> Any:
        return away_from_loop(starts)

    assert asyncio.run(program())[0] == "none"
    assert away_from_loop(starts)[1] == threading.current_thread().name
