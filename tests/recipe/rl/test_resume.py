"""A run that is stopped anywhere and started again trains each batch exactly once."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.recipe.fake_service import Call, FakeService
from tests.recipe.rl.guessing import (
    alternating,
    config,
    guesses,
    places,
    records,
    rows,
    run,
    trained,
)

from mint.recipe.exceptions import CheckpointError
from mint.recipe.rl.config import AsyncConfig, Config, StreamMinibatchConfig
from mint.recipe.rl.train import main
from mint.recipe.stores.run_folder import RunFolder

STEPS, GROUPS = 3, 2
SCHEDULES = {
    "synchronous": {},
    "streaming": {
        "stream_minibatch_config": StreamMinibatchConfig(groups_per_batch=GROUPS, num_minibatches=2)
    },
    "asynchronous": {"async_config": AsyncConfig(max_steps_off_policy=1, groups_per_batch=GROUPS)},
}


class Killed(Exception):
    """The process is gone."""


class Kill:
    """Ends the run at the n-th call of the service, or never."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.calls = 0

    def __call__(self, call: Call) -> Exception | None:
        self.calls += 1
        return Killed() if self.calls == self.at else None


class Remembering(FakeService):
    """A service that knows of every checkpoint which gradients its weights have been changed by."""

    def __init__(self, fail: Callable[[Call], Exception | None], latency_s: float = 0.0) -> None:
        super().__init__(alternating(), fail=fail, latency_s=latency_s)
        self.seen: dict[str, list[int]] = {}
        """Path -> the groups whose gradients were applied, in order."""
        self._applied: dict[Any, list[int]] = {}
        self._gathered: dict[Any, list[int]] = {}

    def promise(self, call: Call, make: Any, left: Any = lambda: None) -> Any:
        def remembered() -> Any:
            value = make()
            self._remember(call, value)
            return value

        return super().promise(call, remembered, left)

    def _remember(self, call: Call, value: Any) -> None:
        client = call.client
        if call.name.startswith(("create_lora", "create_training")):
            self._applied[value] = list(self.seen.get(call.arguments.get("path", ""), []))
        elif call.name == "forward_backward":
            self._gathered.setdefault(client, []).extend(sorted(set(places(call))))
        elif call.name == "optim_step":
            self._applied[client] += self._gathered.pop(client, [])
        elif call.name == "save_state":
            self.seen[value.path] = list(self._applied[client])


def calls_of_a_whole_run(folder: Path, make: Callable[[Path, FakeService], Config]) -> int:
    kill = Kill()
    asyncio.run(main(make(folder, Remembering(kill))))
    return kill.calls


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_killed_at_any_call_and_resumed_every_batch_is_trained_once(tmp_path: Path, schedule: str):
    def make(folder: Path, service: FakeService) -> Config:
        batches = guesses(STEPS, GROUPS)
        # a save after the second of three steps: a kill may lose two steps, or one, or none
        return config(folder, service, batches, save_every=2, **SCHEDULES[schedule])

    total = calls_of_a_whole_run(tmp_path / "whole", make)
    assert total > 15

    for at in range(1, total + 1):
        kill, folder = Kill(), tmp_path / f"killed-{at}"
        service = Remembering(kill)
        kill.at = at
        with pytest.raises(Killed):
            asyncio.run(main(make(folder, service)))

        asyncio.run(main(make(folder, service)))

        final = records(folder)[-1]
        assert sorted(service.seen[final["state_path"]]) == list(range(STEPS * GROUPS)), at
        assert final["final"], at
        assert service.checkpoints[final["state_path"]].steps == STEPS, at
        assert service.checkpoints[final["state_path"]].optimizer_steps == STEPS, at
        assert [row["step"] for row in rows(folder)] == list(range(STEPS)), at
        assert rows(folder)[-1]["tokens/cumulative/trained"] == STEPS * GROUPS * 2 * 2, at


def test_cancelled_at_any_call_and_resumed_every_batch_is_trained_once(tmp_path: Path):
    async def cancelled_at(at: int, folder: Path) -> Remembering:
        calls = 0

        def cancel(call: Call) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                loop.call_soon_threadsafe(task.cancel)

        loop = asyncio.get_running_loop()
        service = Remembering(cancel, latency_s=0.0005)
        task = asyncio.create_task(main(config(folder, service, guesses(2), save_every=1)))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return service

    total = calls_of_a_whole_run(
        tmp_path / "whole",
        lambda folder, service: config(folder, service, guesses(2), save_every=1),
    )
    for at in range(1, total - 1):
        folder = tmp_path / str(at)
        service = asyncio.run(cancelled_at(at, folder))
        run(folder, service, guesses(2), save_every=1)

        assert service.seen[records(folder)[-1]["state_path"]] == [0, 1, 2, 3], at
        assert [row["step"] for row in rows(folder)] == [0, 1], at


def test_a_resumed_run_goes_on_with_the_next_batch_and_its_optimizer(tmp_path: Path):
    service = FakeService(alternating())
    run(tmp_path, service, guesses(4, 1), max_steps=2)

    run(tmp_path, service, guesses(4, 1), max_steps=4)

    assert trained(service) == [[0], [1], [2], [3]]
    assert service.training_clients[1].weights.optimizer_steps == 4
    assert [row["step"] for row in rows(tmp_path)] == [0, 1, 2, 3]
    assert rows(tmp_path)[-1]["env/all/reward/total"] == 0.5


def test_a_run_that_is_complete_writes_nothing_and_returns(tmp_path: Path):
    service = FakeService(alternating())
    run(tmp_path, service, guesses(2))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    calls = len(service.calls)

    run(tmp_path, service, guesses(2))

    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    assert len(service.calls) == calls


def test_the_row_after_a_resume_with_a_final_evaluation_is_the_only_one_of_its_step(
    tmp_path: Path,
):
    """A finished run that is extended has its closing row moved away: its step is a real one now."""

    class Two:
        name = "two"

        async def __call__(self, sampling_client: Any) -> dict[str, float]:
            return {"two/weights": sampling_client.steps}

    service = FakeService(alternating())
    fields: dict[str, Any] = {"eval_every": 2, "evaluator_builders": [Two]}
    run(tmp_path, service, guesses(4, 1), max_steps=2, **fields)

    run(tmp_path, service, guesses(4, 1), max_steps=4, **fields)

    assert [(row["step"], row.get("two/weights")) for row in rows(tmp_path)] == [
        (0, 0), (1, None), (2, 2), (3, None), (4, 4),
    ]  # fmt: skip
    assert rows(tmp_path)[-1]["env/all/reward/total"] == 0.5


def test_a_load_checkpoint_path_starts_with_a_fresh_optimizer(tmp_path: Path):
    service = FakeService(alternating())
    run(tmp_path / "first", service, guesses(2))
    start = records(tmp_path / "first")[-1]["state_path"]

    fields = {"load_checkpoint_path": start, "renderer_name": "role_colon"}
    run(tmp_path / "second", service, guesses(1), **fields)

    weights = service.training_clients[-1].weights
    assert (weights.steps, weights.optimizer_steps) == (3, 1)


def test_weights_that_were_trained_with_another_renderer_are_pointed_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    service = FakeService(alternating())
    first = config(tmp_path / "first", service, guesses(1), renderer_name="qwen3")
    asyncio.run(main(first))
    start = records(tmp_path / "first")[-1]["state_path"]

    fields = {"load_checkpoint_path": start, "renderer_name": "role_colon"}
    with caplog.at_level(logging.WARNING, "mint.recipe"):
        run(tmp_path / "second", service, guesses(1), **fields)

    assert "trained with renderer 'qwen3'" in caplog.text


def test_a_resume_takes_its_own_weights_and_not_those_of_load_checkpoint_path(tmp_path: Path):
    service = FakeService(alternating())
    run(tmp_path / "start", service, guesses(1))
    start = records(tmp_path / "start")[-1]["state_path"]
    fields: dict[str, Any] = {"load_checkpoint_path": start}
    run(tmp_path / "run", service, guesses(2), max_steps=1, **fields)

    run(tmp_path / "run", service, guesses(2), **fields)

    assert service.training_clients[-1].steps == 3  # 1 of the start, 2 of the run


def test_a_folder_of_another_kind_of_run_is_refused(tmp_path: Path):
    (tmp_path / "checkpoints.jsonl").write_text('{"name": "x", "state_path": "tinker://a/b"}\n')

    with pytest.raises(CheckpointError, match="no `batch`"):
        run(tmp_path, FakeService(), guesses(1))


def test_a_step_whose_row_could_not_be_written_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The row comes before the record that says the step is over."""
    append = RunFolder.append_row

    def disk_full_at_step_1(folder: RunFolder, row: dict[str, Any]) -> None:
        if row["step"] == 1:
            raise OSError("no space left")
        append(folder, row)

    service = FakeService(alternating())
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_row", disk_full_at_step_1)
        with pytest.raises(OSError, match="no space left"):
            run(tmp_path, service, guesses(3, 1), save_every=1)

    run(tmp_path, service, guesses(3, 1), save_every=1)

    assert [row["step"] for row in rows(tmp_path)] == [0, 1, 2]
    assert service.training_clients[-1].steps == 3


def test_a_run_goes_on_under_another_schedule(tmp_path: Path):
    service = FakeService(alternating())
    run(tmp_path, service, guesses(4), max_steps=1)

    fields = {"async_config": AsyncConfig(max_steps_off_policy=1, groups_per_batch=2)}
    run(tmp_path, service, guesses(4), max_steps=3, **fields)
    run(tmp_path, service, guesses(4))

    assert trained(service) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert ["walked" in record for record in records(tmp_path)] == [False, True, False]


def test_a_straggler_that_a_kill_cut_off_is_trained_after_the_resume_and_the_others_are_not(
    tmp_path: Path,
):
    stuck = [True]

    async def first(place: int) -> None:
        if place == 0 and stuck:
            await asyncio.sleep(60)

    def third_update(call: Call) -> Exception | None:
        is_third = call.name == "optim_step" and len(service.called("optim_step")) == 3
        return Killed() if is_third and stuck else None

    service = Remembering(third_update)
    fields: dict[str, Any] = {
        "save_every": 1,
        "async_config": AsyncConfig(max_steps_off_policy=1, groups_per_batch=2),
    }
    with pytest.raises(Killed):
        run(tmp_path, service, guesses(4, first=first), **fields)
    assert records(tmp_path)[-1]["walked"] == [0, [1, 2, 3, 4]]

    stuck.clear()
    run(tmp_path, service, guesses(4, first=first), **fields)

    final = records(tmp_path)[-1]
    assert final["walked"] == [8, []]
    assert sorted(service.seen[final["state_path"]]) == list(range(8))
    assert rows(tmp_path)[2]["step"] == 2
