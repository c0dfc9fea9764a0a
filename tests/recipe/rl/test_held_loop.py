"""Steps that hold the event loop are named; steps that wait are not."""

import asyncio
from typing import Any

import pytest
from tests.recipe.rl.players import RENDERER, Chat, Script, run

from mint.recipe.messages import Message
from mint.recipe.rl import held_loop
from mint.recipe.rl.held_loop import Watched
from mint.recipe.rl.message_env import EnvFromMessageEnv, MessageStepResult
from mint.recipe.rl.rollout_runner import do_single_rollout


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(held_loop, "time", clock)
    return clock


def play(env: Chat) -> None:
    run(do_single_rollout(Script("4"), EnvFromMessageEnv(RENDERER, env)))


def test_a_step_that_blocks_is_named_once_for_its_class(
    clock: Clock, caplog: pytest.LogCaptureFixture
):
    class Blocks(Chat):
        async def step(self, message: Message) -> MessageStepResult:
            clock.advance(1.5)
            return await super().step(message)

    play(Blocks())
    play(Blocks())

    [warning] = caplog.messages
    assert "Blocks.step held the event loop for 1.5 s" in warning


def test_a_step_that_waits_as_long_or_blocks_briefly_is_not(
    clock: Clock, caplog: pytest.LogCaptureFixture
):
    class Waits(Chat):
        async def step(self, message: Message) -> MessageStepResult:
            clock.advance(0.9)
            asyncio.get_running_loop().call_soon(clock.advance, 60.0)  # while it waits
            await asyncio.sleep(0)
            clock.advance(0.9)
            return await super().step(message)

    play(Waits())

    assert clock.now == pytest.approx(61.8)
    assert caplog.messages == []


# --------------------------------------------- otherwise it is a plain await


def watched(work: Any) -> Any:
    async def awaits() -> Any:
        return await Watched(work, object)

    return awaits()


def test_results_and_errors_come_through():
    async def three() -> int:
        await asyncio.sleep(0)
        return 3

    async def fails() -> int:
        await asyncio.sleep(0)
        raise ValueError("as it is")

    assert run(watched(three())) == 3
    with pytest.raises(ValueError, match="as it is"):
        run(watched(fails()))


def test_a_cancellation_reaches_the_inside_which_may_tidy_up():
    tidied: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.append("yes")

    async def cancelled() -> None:
        task = asyncio.create_task(watched(waits()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    assert tidied == ["yes"]


def test_an_error_that_the_inside_catches_is_over():
    async def catches() -> str:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.001)
        except TimeoutError:
            return "went on"
        return ""

    assert run(watched(catches())) == "went on"


def test_anything_that_can_be_awaited_will_do():
    async def future() -> int:
        promise = asyncio.get_running_loop().create_future()
        promise.set_result(5)
        return await Watched(promise, object)

    assert run(future()) == 5
