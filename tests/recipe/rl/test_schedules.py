"""When groups roll out and when they are trained, under the schedules that overlap the two."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.recipe.fake_service import FakeService
from tests.recipe.rl.guessing import (
    BAD,
    REWARD,
    GuessGroup,
    alternating,
    always,
    guesses,
    rows,
    run,
    trained,
    training_calls,
)

from mint.recipe.eval.evaluators import SamplingClientEvaluator
from mint.recipe.exceptions import DataError
from mint.recipe.rl.config import AsyncConfig, StreamMinibatchConfig
from mint.recipe.rl.loops.asynchronous import SnapshotEvaluations
from mint.recipe.rl.rollout_strategy import RetryOnFailure
from mint.recipe.rl.run import Run


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what it looks at happens in another thread
            await asyncio.sleep(0.001)


def streaming(groups: int, minibatches: int) -> StreamMinibatchConfig:
    return StreamMinibatchConfig(groups_per_batch=groups, num_minibatches=minibatches)


# ------------------------------------------------------------------ streaming


def test_streaming_trains_while_other_groups_still_play(tmp_path: Path):
    service = FakeService(alternating())

    async def first(place: int) -> None:
        if place == 1:
            await until(lambda: "forward_backward" in service.names())

    run(
        tmp_path, service, guesses(batches=1, first=first),
        stream_minibatch_config=streaming(groups=2, minibatches=2),
    )  # fmt: skip

    assert trained(service) == [[0], [1]]


def test_streaming_trains_groups_in_the_order_in_which_they_finish(tmp_path: Path):
    service = FakeService(alternating())

    async def first(place: int) -> None:  # the last goes first
        await until(lambda: len(service.called("forward_backward")) == 2 - place)

    run(
        tmp_path, service, guesses(batches=1, groups=3, first=first),
        stream_minibatch_config=streaming(groups=3, minibatches=3),
    )  # fmt: skip

    assert trained(service) == [[2], [1], [0]]


def test_streaming_makes_an_optimizer_step_of_every_num_minibatches_gradients(tmp_path: Path):
    service = FakeService(alternating())

    run(
        tmp_path, service, guesses(batches=2, groups=8), num_substeps=2,
        stream_minibatch_config=streaming(groups=8, minibatches=2),
    )  # fmt: skip

    assert training_calls(service) == ["fb", "fb", "opt"] * 4
    assert [len(groups) for groups in trained(service)] == [2] * 8
    assert sorted(chain(*trained(service)[:4])) == list(range(8))


def test_streaming_is_on_policy(tmp_path: Path):
    service = FakeService(alternating())

    run(
        tmp_path, service, guesses(batches=3, groups=2), num_substeps=2,
        stream_minibatch_config=streaming(groups=2, minibatches=1),
    )  # fmt: skip

    # two optimizer steps a batch, and no sample of the weights between them
    assert [call.client.steps for call in service.called("sample")] == [0, 0, 2, 2, 4, 4]
    assert [row["sampling_client/step_max"] for row in rows(tmp_path)] == [0, 1, 2]
    assert [row["sampling_client/step_min"] for row in rows(tmp_path)] == [0, 1, 2]


def test_streaming_trains_a_minibatch_without_the_group_that_failed(tmp_path: Path):
    service = FakeService(alternating())
    batch = [GuessGroup(0), GuessGroup(1, raises=RuntimeError("crashed")), GuessGroup(2)]

    run(
        tmp_path, service, [[*batch, GuessGroup(3)]],
        stream_minibatch_config=streaming(groups=4, minibatches=2),
        rollout_error_tolerance=RetryOnFailure(max_retries=0),
    )  # fmt: skip

    assert training_calls(service) == ["fb", "fb", "opt"]
    assert sorted(chain(*trained(service))) == [0, 2, 3]
    [row] = rows(tmp_path)
    assert (row["batch/groups_requested"], row["batch/groups_failed"]) == (4, 1)


def test_streaming_of_a_smaller_batch_than_configured_ends_with_a_smaller_minibatch(
    tmp_path: Path,
):
    service = FakeService(alternating())

    run(
        tmp_path, service, guesses(batches=1, groups=3),
        stream_minibatch_config=streaming(groups=4, minibatches=2),
    )  # fmt: skip

    assert [len(groups) for groups in trained(service)] == [2, 1]
    assert training_calls(service) == ["fb", "fb", "opt"]


def test_streaming_of_groups_without_signal_sends_nothing(tmp_path: Path):
    service = FakeService(always(BAD))

    run(
        tmp_path, service, guesses(batches=2), remove_constant_reward_groups=True,
        stream_minibatch_config=streaming(groups=2, minibatches=2),
    )  # fmt: skip

    assert training_calls(service) == []
    assert [row["optim/skipped_step"] for row in rows(tmp_path)] == [1, 1]


def test_streaming_leaves_no_task_when_a_rollout_fails(tmp_path: Path):
    cleaned: list[int] = []

    async def first(place: int) -> None:
        if place == 0:
            raise RuntimeError("crashed")
        await asyncio.sleep(60)

    batches = guesses(batches=1, groups=4, first=first, cleaned=cleaned)
    mode = streaming(groups=4, minibatches=2)
    with pytest.raises(RuntimeError, match="crashed"):
        run(tmp_path, FakeService(alternating()), batches, stream_minibatch_config=mode)

    assert sorted(cleaned) == [0, 1, 2, 3]


# --------------------------------------------------------------- asynchronous


def asynchronous(off_policy: int, groups: int = 2, **fields: Any) -> AsyncConfig:
    return AsyncConfig(max_steps_off_policy=off_policy, groups_per_batch=groups, **fields)


def test_asynchronous_trains_every_group_once(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=5), async_config=asynchronous(2))

    assert sorted(chain(*trained(service))) == list(range(10))
    assert [row["step"] for row in rows(tmp_path)] == [0, 1, 2, 3, 4]


def test_with_no_step_off_policy_every_group_is_of_the_weights_it_trains(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=4), async_config=asynchronous(0))

    assert [call.client.steps for call in service.called("sample")] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [row["async/staleness_max"] for row in rows(tmp_path)] == [0, 0, 0, 0]


def test_with_one_step_off_policy_the_next_batch_is_sampled_before_this_one_is_trained(
    tmp_path: Path,
):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=4), async_config=asynchronous(1))

    assert [row["async/staleness_max"] for row in rows(tmp_path)] == [0, 1, 1, 1]
    assert [row["async/staleness_min"] for row in rows(tmp_path)] == [0, 1, 1, 1]
    assert [row["training_client/step"] for row in rows(tmp_path)] == [0, 1, 2, 3]
    assert trained(service) == [[0, 1], [2, 3], [4, 5], [6, 7]]  # oldest sampler first


def test_the_groups_that_run_or_wait_are_bounded(tmp_path: Path):
    """A group is counted from its first prompt until the weights it has trained are published."""
    service = FakeService(alternating())
    started: list[int] = []
    counted: list[int] = []

    async def first(place: int) -> None:
        if place not in started:
            started.append(place)
        published = len(service.called("save_weights_and_get_sampling_client")) - 1
        counted.append(len(started) - 2 * published)
        await asyncio.sleep(0.001)

    run(tmp_path, service, guesses(batches=6, first=first), async_config=asynchronous(2))

    assert max(counted) == 2 * (2 + 1)
    assert len(started) == 12


def test_a_straggler_holds_nobody_up_and_shows_as_staleness(tmp_path: Path):
    service = FakeService(alternating())

    async def first(place: int) -> None:
        if place == 0:
            await until(lambda: len(service.called("optim_step")) == 3)

    run(tmp_path, service, guesses(batches=4, first=first), async_config=asynchronous(1))

    assert trained(service)[-1] == [0, 7]
    assert rows(tmp_path)[-1]["async/staleness_max"] == 3


def test_a_failed_worker_ends_the_run_as_itself_and_leaves_no_task(tmp_path: Path):
    cleaned: list[int] = []
    started: set[int] = set()

    async def first(place: int) -> None:
        started.add(place)
        if place == 5:
            raise RuntimeError("crashed")
        if place > 5:
            await asyncio.sleep(60)

    batches = guesses(batches=8, first=first, cleaned=cleaned)
    with pytest.raises(RuntimeError, match="crashed"):
        run(tmp_path, FakeService(alternating()), batches, async_config=asynchronous(1))

    assert Counter(cleaned) == Counter(started)  # once each


def test_a_failed_optimizer_step_ends_the_run_as_itself(tmp_path: Path):
    def fail(call: Any) -> Exception | None:
        steps = len(service.called("optim_step"))
        return OSError("gone") if call.name == "optim_step" and steps == 2 else None

    service = FakeService(alternating(), fail=fail)

    with pytest.raises(OSError, match="gone"):
        run(tmp_path, service, guesses(batches=4), async_config=asynchronous(1))

    assert [row["step"] for row in rows(tmp_path)] == [0]


def test_a_group_that_fails_takes_its_place_in_a_batch(tmp_path: Path):
    service = FakeService(alternating())
    broken = GuessGroup(1, raises=RuntimeError("crashed"))

    run(
        tmp_path, service, [[GuessGroup(0), broken], [GuessGroup(2), GuessGroup(3)]],
        async_config=asynchronous(0), rollout_error_tolerance=RetryOnFailure(max_retries=0),
    )  # fmt: skip

    assert trained(service) == [[0], [2, 3]]
    assert [row["batch/groups_failed"] for row in rows(tmp_path)] == [1, 0]


def test_the_walk_goes_on_from_the_beginning_where_steps_need_more_groups(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=2, groups=1), async_config=asynchronous(0, groups=2))

    assert trained(service) == [[0, 1], [0, 1]]


@pytest.mark.parametrize(("before", "after"), [(4, 2), (1, 2)])
def test_a_resume_with_another_number_of_groups_a_step_goes_on_where_the_walk_was(
    tmp_path: Path, before: int, after: int
):
    service = FakeService(alternating())

    first = asynchronous(1, groups=before)
    run(tmp_path, service, guesses(batches=10), async_config=first, max_steps=2)
    run(
        tmp_path, service, guesses(batches=10), max_steps=5,
        async_config=asynchronous(1, groups=after),
    )  # fmt: skip

    assert [row["step"] for row in rows(tmp_path)] == [0, 1, 2, 3, 4]
    assert sorted(chain(*trained(service)[2:])) == list(range(2 * before, 2 * before + 3 * after))


def test_a_batch_without_groups_is_passed_over_unless_there_is_no_other(tmp_path: Path):
    service = FakeService(alternating())

    some = [[], [GuessGroup(0)], []]
    run(tmp_path / "some", service, some, async_config=asynchronous(0, groups=1))
    with pytest.raises(DataError, match="for none of the 2 batches"):
        run(tmp_path / "none", service, [[], []], async_config=asynchronous(0, groups=1))

    assert trained(service) == [[0], [0], [0]]


def test_rollouts_beside_training_are_measured_in_the_steps_they_end_in(tmp_path: Path):
    run(tmp_path, FakeService(alternating()), guesses(batches=3), async_config=asynchronous(1))

    sampled = [
        row.get("time/policy_sample:count", 0) + ("time/policy_sample" in row)
        for row in rows(tmp_path)
    ]
    assert sum(sampled) == 3 * 2 * 2  # every member of every group, once


def test_the_asynchronous_loss_is_sent(tmp_path: Path):
    service = FakeService(alternating())

    run(tmp_path, service, guesses(batches=1), async_config=asynchronous(0, loss_fn="cispo"))

    assert service.called("forward_backward")[0].arguments["loss_fn"] == "cispo"


class Slow(SamplingClientEvaluator):
    """Answers with the age of its weights, once training has gone on."""

    name = "slow"

    def __init__(self, service: FakeService, steps: int) -> None:
        self.service = service
        self.steps = steps

    async def __call__(self, sampling_client: Any) -> dict[str, float]:
        await until(lambda: len(self.service.called("optim_step")) >= self.steps)
        return {"slow/weights": sampling_client.steps}


def test_evaluations_run_beside_training_on_the_weights_they_started_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    service = FakeService(alternating())

    with caplog.at_level(logging.WARNING, "mint.recipe"):
        run(
            tmp_path, service, guesses(batches=6), async_config=asynchronous(1), eval_every=2,
            evaluator_builders=[lambda: Slow(service, steps=3)],
        )  # fmt: skip

    by_step = {
        row["eval/snapshot/step"]: row["eval/by_step/slow/weights"]
        for row in rows(tmp_path)
        if "eval/snapshot/step" in row
    }
    assert by_step[0] == 0  # started before step 0, and over only after step 2
    assert "due at step 2 is left out" in caplog.text
    last = rows(tmp_path)[-1]
    assert (last["step"], last["slow/weights"], last[REWARD]) == (6, 6, 0.5)


async def test_evaluations_that_end_in_one_step_have_a_row_each():
    async def evaluate(sampler: Any, step: int) -> dict[str, float]:
        return {"value": sampler}

    async with asyncio.TaskGroup() as tasks:
        evaluations = SnapshotEvaluations(cast("Run", SimpleNamespace(evaluate=evaluate)), tasks)
        evaluations.start(10, 0)
        await evaluations.finish()
        evaluations.start(11, 1)
        await evaluations.finish()

    found = [evaluations.found(step) for step in (1, 2, 3)]
    assert [row.get("eval/by_step/value") for row in found] == [10, 11, None]
    assert [row.get("eval/snapshot/step") for row in found] == [0, 1, None]


def test_a_failed_evaluation_ends_the_run_as_itself(tmp_path: Path):
    class Broken(SamplingClientEvaluator):
        async def __call__(self, sampling_client: Any) -> dict[str, float]:
            raise ValueError("no such benchmark")

    with pytest.raises(ValueError, match="no such benchmark"):
        run(
            tmp_path, FakeService(alternating()), guesses(batches=3), eval_every=1,
            async_config=asynchronous(1), evaluator_builders=[Broken],
        )  # fmt: skip


def test_a_step_without_data_counts_in_the_asynchronous_schedule_too(tmp_path: Path):
    service = FakeService(always(BAD))

    run(
        tmp_path, service, guesses(batches=3), remove_constant_reward_groups=True,
        async_config=asynchronous(1),
    )  # fmt: skip

    assert training_calls(service) == []
    assert [row["optim/skipped_step"] for row in rows(tmp_path)] == [1, 1, 1]
    assert rows(tmp_path)[-1][REWARD] == 0.0
