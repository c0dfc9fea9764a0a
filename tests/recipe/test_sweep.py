"""Sweeps: each configuration once, whatever happens to the others or to the process."""

import asyncio
import json
import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import chz
import pytest
from tests.recipe.run_folders import a_run

from mint.recipe import sweep
from mint.recipe.exceptions import ConfigurationError, DataFormatError
from mint.recipe.stores.sweep_record import State, read_record


@chz.chz
class Config:
    """As much of a run's config as a sweep looks at."""

    log_path: str
    learning_rate: float = 1e-4
    base_url: str | None = None
    service_client: Any | None = None


class Trainer:
    """Makes invented runs, counts them, and fails where it is told to."""

    def __init__(
        self, fails: Collection[str] = (), gate: asyncio.Event | None = None, together: int = 1
    ):
        self.fails, self.gate, self.together = fails, gate, together
        self.gathered = asyncio.Event()
        self.trained: list[str] = []
        self.clients: list[Any] = []
        self.at_once = self.most_at_once = 0

    async def __call__(self, *, config: Config) -> None:
        name = Path(config.log_path).name
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.at_once == self.together:
                self.gathered.set()
            await self.gathered.wait()
            await asyncio.sleep(0.01)  # time for one too many to come in
            if self.gate is not None:
                await self.gate.wait()
            if name in self.fails:
                raise RuntimeError(f"no room for {name}\nnor for others")
            a_run(Path(config.log_path), steps=3)
            self.trained.append(name)
            self.clients.append(config.service_client)
        finally:
            self.at_once -= 1


def configurations(folder: Path, **more: Any) -> list[sweep.Configuration]:
    return [
        sweep.Configuration(
            name, {"lr": lr}, Config(log_path=str(folder / name), learning_rate=lr, **more)
        )
        for name, lr in (("a", 1e-4), ("b", 2e-4), ("c", 4e-4))
    ]


def run(folder: Path, trainer: Trainer, **more: Any) -> sweep.SweepReport:
    more.setdefault("service_client", object())
    chosen = more.pop("chosen", configurations(folder))
    return asyncio.run(sweep.run(chosen, folder / "sweep", train=trainer, **more))


def test_a_grid_goes_round_fastest_in_its_last_axis():
    assert sweep.grid(kl=[0.0, 0.02], temp=[0.7, 1.0]) == [
        {"kl": 0.0, "temp": 0.7}, {"kl": 0.0, "temp": 1.0},
        {"kl": 0.02, "temp": 0.7}, {"kl": 0.02, "temp": 1.0},
    ]  # fmt: skip
    assert sweep.grid() == [{}]


def test_every_configuration_runs_once_through_one_client(tmp_path):
    trainer, client = Trainer(), object()

    report = run(tmp_path, trainer, service_client=client)

    assert sorted(trainer.trained) == ["a", "b", "c"]
    assert trainer.clients == [client] * 3
    assert [(one.name, one.state) for one in report.entries] == [
        ("a", State.finished), ("b", State.finished), ("c", State.finished),
    ]  # fmt: skip
    assert report.failed == []


def test_a_client_that_a_config_brings_is_left_alone(tmp_path):
    trainer, own = Trainer(), object()

    run(tmp_path, trainer, chosen=configurations(tmp_path, service_client=own))

    assert trainer.clients == [own] * 3


@pytest.mark.parametrize("places", [1, 2, 3])
def test_no_more_run_at_a_time_than_there_are_places(tmp_path, places):
    trainer = Trainer(together=places)

    run(tmp_path, trainer, side_by_side=places)

    assert trainer.most_at_once == places


def test_one_that_fails_is_noted_and_the_others_finish(tmp_path, caplog):
    trainer = Trainer(fails={"b"})

    report = run(tmp_path, trainer)

    assert sorted(trainer.trained) == ["a", "c"]
    [failed] = report.failed
    assert (failed.name, failed.error) == ("b", "RuntimeError: no room for b nor for others")
    assert "Traceback" in caplog.text
    assert "no room for b" in report.page.read_text()


def test_started_again_a_sweep_runs_what_is_not_finished(tmp_path):
    run(tmp_path, Trainer(fails={"b"}))
    trainer = Trainer()

    report = run(tmp_path, trainer)

    assert trainer.trained == ["b"]
    assert {one.state for one in report.entries} == {State.finished}
    assert {one.error for one in report.entries} == {None}


def test_a_finished_sweep_runs_nothing_and_connects_to_nobody(tmp_path, monkeypatch):
    run(tmp_path, Trainer())
    monkeypatch.setattr(sweep.Service, "connect", None)  # calling it would fail
    trainer, seen = Trainer(), []

    report = run(
        tmp_path, trainer, on_change=lambda one, entry: seen.append((one.name, entry.state))
    )

    assert trainer.trained == []
    assert seen == [("a", State.finished), ("b", State.finished), ("c", State.finished)]
    assert len(report.entries) == 3


def test_one_whose_folder_is_gone_runs_again(tmp_path):
    run(tmp_path, Trainer())
    (tmp_path / "c" / "checkpoints.jsonl").unlink()
    trainer = Trainer()

    run(tmp_path, trainer)

    assert trainer.trained == ["c"]


def test_an_interrupted_sweep_goes_on(tmp_path):
    async def interrupted() -> None:
        going = asyncio.create_task(
            sweep.run(
                configurations(tmp_path), tmp_path / "sweep", train=Trainer(gate=asyncio.Event()),
                service_client=object(),
            )
        )  # fmt: skip
        await asyncio.sleep(0.05)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(interrupted())
    record = read_record(tmp_path / "sweep")
    assert record is not None
    assert State.finished not in {one.state for one in record.entries}
    trainer = Trainer()

    run(tmp_path, trainer)

    assert sorted(trainer.trained) == ["a", "b", "c"]


def test_a_grid_can_grow(tmp_path):
    run(tmp_path, Trainer(), chosen=configurations(tmp_path)[:2])
    trainer = Trainer()

    report = run(tmp_path, trainer)

    assert trainer.trained == ["c"]
    assert [one.name for one in report.entries] == ["a", "b", "c"]


def test_another_configuration_under_the_same_name_is_refused(tmp_path):
    run(tmp_path, Trainer())
    other = sweep.Configuration(
        "a", {"lr": 1.0}, Config(log_path=str(tmp_path / "a"), learning_rate=1)
    )

    with pytest.raises(ConfigurationError, match="'a' is another one"):
        run(tmp_path, Trainer(), chosen=[other])


def test_the_same_configuration_in_another_folder_is_refused(tmp_path):
    run(tmp_path, Trainer())

    with pytest.raises(ConfigurationError, match="the same log_path"):
        run(tmp_path, Trainer(), chosen=[
            sweep.Configuration("a", {}, Config(log_path=str(tmp_path / "elsewhere")))
        ])  # fmt: skip


def test_names_and_log_folders_are_each_ones_own(tmp_path):
    a, b, _ = configurations(tmp_path)

    with pytest.raises(ConfigurationError, match="same name: a"):
        run(tmp_path, Trainer(), chosen=[a, a])
    with pytest.raises(ConfigurationError, match="same log_path"):
        run(tmp_path, Trainer(), chosen=[a, sweep.Configuration("d", {}, a.config)])
    with pytest.raises(ConfigurationError, match="side_by_side=0"):
        run(tmp_path, Trainer(), chosen=[a, b], side_by_side=0)
    assert not (tmp_path / "sweep").exists()


def test_a_fingerprint_forgets_where_a_run_is_logged_and_addresses_in_memory():
    class Held:
        pass

    first = Config(log_path="x", base_url=None, service_client=Held())

    assert sweep.fingerprint(first) == sweep.fingerprint(chz.replace(first, log_path="y"))
    assert sweep.fingerprint(first) != sweep.fingerprint(chz.replace(first, learning_rate=1.0))

    @chz.chz
    class WithObject:
        log_path: str
        held: Any

    assert sweep.fingerprint(WithObject(log_path="x", held=Held())) == sweep.fingerprint(
        WithObject(log_path="x", held=Held())
    )


def test_a_record_that_cannot_be_read_is_refused_with_a_way_out(tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps({"schema_version": 7}))

    with pytest.raises(DataFormatError, match="remove the file"):
        run(tmp_path, Trainer())


def test_a_page_that_cannot_be_made_does_not_end_a_sweep(tmp_path, monkeypatch, caplog):
    def fails(record: object) -> str:
        raise RuntimeError("no page")

    monkeypatch.setattr(sweep, "sweep_page", fails)
    caplog.set_level(logging.WARNING)

    assert run(tmp_path, Trainer()).failed == []
    assert "no page" in caplog.text


def test_two_processes_do_not_run_the_same_sweep(tmp_path):
    claim = tmp_path / "sweep" / "running.pid"
    claim.parent.mkdir()
    claim.write_text(str(os.getppid()))

    with pytest.raises(ConfigurationError, match=f"process {os.getppid()} is running"):
        run(tmp_path, Trainer())
    claim.write_text("999999999")  # no process has this number any more

    assert run(tmp_path, Trainer()).failed == []
    assert not claim.exists()


def test_an_unfinished_sweep_of_the_same_configurations_can_be_found_again(tmp_path):
    chosen = configurations(tmp_path)
    assert not sweep.can_go_on(tmp_path / "sweep", chosen)

    run(tmp_path, Trainer(fails={"b"}))
    assert sweep.can_go_on(tmp_path / "sweep", chosen)
    assert not sweep.can_go_on(tmp_path / "sweep", chosen[:2])
    assert not sweep.can_go_on(tmp_path / "sweep", configurations(tmp_path, base_url="http://else"))

    run(tmp_path, Trainer())
    assert not sweep.can_go_on(tmp_path / "sweep", chosen)
