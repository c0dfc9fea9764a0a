"""Spans find their step without an argument, and two steps side by side do not mix."""

import asyncio

import pytest

from mint.recipe.stores.timing import Span, StepTimes, measuring, span, timeline


def test_a_span_of_one_call_has_one_number_and_of_several_has_four():
    times = StepTimes()
    times.spans = [Span("train", 0.0, 2.0), Span("env_step", 0.0, 1.0), Span("env_step", 0.5, 3.0)]

    metrics = times.metrics()
    total = metrics.pop("time/total")
    assert metrics == {
        "time/train": 2.0,
        "time/env_step:total": 4.0, "time/env_step:count": 2, "time/env_step:mean": 2.0,
        "time/env_step:max": 3.0,
    }  # fmt: skip
    assert total >= 0


async def test_tasks_and_threads_of_a_step_record_into_it():
    async def task() -> None:
        with span("task"):
            await asyncio.to_thread(thread)

    def thread() -> None:
        with span("thread"):
            pass

    with measuring() as times:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(task())
            tasks.create_task(task())

    assert sorted(each.name for each in times.spans) == ["task", "task", "thread", "thread"]


async def test_two_steps_side_by_side_do_not_mix():
    async def step(name: str) -> list[str]:
        with measuring() as times:
            await asyncio.sleep(0)
            with span(name):
                await asyncio.sleep(0)
        return [each.name for each in times.spans]

    assert await asyncio.gather(step("a"), step("b")) == [["a"], ["b"]]


async def test_on_a_timeline_a_span_belongs_to_the_step_it_ends_in():
    ends = {name: asyncio.Event() for name in ("first", "between", "second")}

    async def long(name: str) -> None:
        with span(name):
            await ends[name].wait()

    async def end(name: str) -> None:
        ends[name].set()
        await running[name]

    with timeline():
        running = {name: asyncio.create_task(long(name)) for name in ends}
        await asyncio.sleep(0)
        with measuring() as one:
            await end("first")
        await end("between")
        with measuring() as two:
            await end("second")
            with measuring() as inner, span("inner"):
                pass

    assert [each.name for each in one.spans] == ["first"]
    assert [each.name for each in two.spans] == ["between", "second"]
    assert [each.name for each in inner.spans] == ["inner"]
    assert two.spans[0].start_s < 0
    assert "time/between" in two.metrics()


def test_without_a_step_nothing_is_recorded_and_after_it_neither():
    with span("outside"):
        pass
    with measuring() as times:
        pass
    with span("after"):
        pass
    assert times.spans == []


def test_a_span_that_fails_is_recorded():
    with measuring() as times, pytest.raises(ValueError, match="no"), span("broken"):
        raise ValueError("no")
    assert [each.name for each in times.spans] == ["broken"]


def test_the_total_ends_with_the_step():
    with measuring() as times:
        pass
    assert times.metrics()["time/total"] == times.metrics()["time/total"]


def test_rows_are_as_few_as_there_are_spans_at_once():
    times = StepTimes()
    times.spans = [
        Span("a", 0.0, 2.0),
        Span("b", 1.0, 3.0),
        Span("c", 2.0, 1.0),
        Span("d", 3.0, 1.0),
    ]
    assert [[each.name for each in row] for row in times.rows()] == [["a", "c", "d"], ["b"]]
