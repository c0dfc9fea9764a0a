"""Tasks that end together, and the failure that is told."""

import asyncio

import pytest

from mint.recipe.tasks import run_together, task_group


async def fail(error: BaseException, after_s: float = 0.0) -> None:
    await asyncio.sleep(after_s)
    raise error


async def test_results_come_in_the_order_of_the_work():
    async def late(value: int, after_s: float) -> int:
        await asyncio.sleep(after_s)
        return value

    assert await run_together([late(1, 0.005), late(2, 0.0)]) == [1, 2]


async def test_the_first_failure_is_raised_as_itself_and_the_others_are_cancelled():
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(KeyError, match="first"):
        await run_together([waits(), fail(KeyError("first")), waits()])

    assert ended == ["cancelled", "cancelled"]


async def test_a_failure_keeps_its_own_cause():
    error = RuntimeError("told")
    error.__cause__ = ValueError("why")

    with pytest.raises(RuntimeError, match="told") as caught:
        await run_together([fail(error)])

    assert isinstance(caught.value.__cause__, ValueError)


async def test_failures_at_the_same_time_are_noted_on_the_first():
    with pytest.raises(KeyError) as caught:
        await run_together([fail(KeyError("one")), fail(ValueError("two"))])

    assert any("two" in note for note in caught.value.__notes__)


async def test_many_failures_at_the_same_time_take_few_lines():
    alike = [fail(KeyError("one")) for _ in range(8)]
    different = [fail(ValueError(n)) for n in range(8)]

    with pytest.raises(KeyError) as caught:
        await run_together([*alike, *different])

    assert caught.value.__notes__ == [
        "7 other tasks failed at the same time in the same way.",
        "At the same time: ValueError(0)",
        "At the same time: ValueError(1)",
        "At the same time: ValueError(2)",
        "At the same time: 5 more.",
    ]


async def test_a_failure_that_takes_no_note_is_raised_all_the_same():
    class Mute(Exception):
        def __repr__(self) -> str:
            raise AttributeError("cannot be shown")

    with pytest.raises(Mute):
        await run_together([fail(Mute()), fail(Mute())])


async def test_a_failure_in_a_group_within_a_group_is_still_itself():
    async def body() -> None:
        async with task_group() as outer:
            outer.create_task(run_together([fail(KeyError("inner"))]))

    with pytest.raises(KeyError, match="inner"):
        await body()


async def test_a_failing_task_ends_the_body_of_its_group():
    async def body() -> None:
        async with task_group() as tasks:
            tasks.create_task(fail(KeyError("task")))
            await asyncio.sleep(60)

    with pytest.raises(KeyError, match="task"):
        await body()


async def test_being_cancelled_from_outside_is_no_failure():
    waiting = asyncio.create_task(run_together([asyncio.sleep(60)]))
    await asyncio.sleep(0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
