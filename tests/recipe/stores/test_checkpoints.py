"""The ledger of checkpoints: written after the server's word, read with patience."""

import asyncio
from pathlib import Path

import pytest
from tests.recipe.fake_service import FakeService

from mint import AdamParams
from mint.recipe import checkpoint_utils
from mint.recipe.checkpoint_utils import (
    CheckpointManager,
    CheckpointRecord,
    get_last_checkpoint,
    load_checkpoints_file,
    save_checkpoint,
    save_checkpoint_async,
)
from mint.recipe.exceptions import CheckpointError, ConfigurationError
from mint.recipe.service import Service
from mint.recipe.stores.checkpoints import append_record, save_paths

STEP = AdamParams(learning_rate=1e-4)


def training(fake: FakeService):
    return fake.create_lora_training_client(
        "m", 8, user_metadata={"renderer_name": "qwen3"}
    ).result()


def test_a_line_has_no_keys_without_a_value_and_keeps_those_it_does_not_know():
    line = {"name": "000020", "batch": 20, "state_path": "tinker://a/weights/b", "mine": [1]}
    record = CheckpointRecord.from_dict(line)

    assert record.to_dict() == line
    assert record.has("mine")
    assert not record.has("sampler_path")
    assert record.get("mine") == [1]
    assert record.get("sampler_path", "none") == "none"
    assert record.extra == {"mine": [1]}


async def test_a_save_is_written_down_with_where_the_loop_stands(tmp_path: Path):
    client = training(FakeService())
    paths = await save_checkpoint_async(client, "000002", tmp_path, {"batch": 2}, "both", 3600)

    [record] = load_checkpoints_file(tmp_path)
    assert (record.name, record.batch) == ("000002", 2)
    assert (record.state_path, record.sampler_path) == (paths["state_path"], paths["sampler_path"])


async def test_a_save_that_fails_is_not_in_the_ledger(tmp_path: Path):
    full = RuntimeError("no room")
    fake = FakeService(fail=lambda call: full if call.name == "save_state" else None)
    with pytest.raises(RuntimeError, match="no room"):
        await save_checkpoint_async(training(fake), "000002", tmp_path, {"batch": 2}, "both")
    assert load_checkpoints_file(tmp_path) == []


async def test_what_is_saved_is_what_the_weights_were_when_it_was_asked(tmp_path: Path):
    fake = FakeService(latency_s=0.005)
    client = training(fake)
    saving = asyncio.create_task(save_paths(client, "x", "both", None))
    await asyncio.sleep(0)
    client.optim_step(STEP)

    paths = await saving
    assert [fake.checkpoints[path].steps for path in paths.values()] == [0, 0]


async def test_an_unknown_kind_is_refused_before_anything_is_saved():
    fake = FakeService()
    with pytest.raises(ConfigurationError, match="state, sampler or both"):
        await save_paths(training(fake), "x", "all", None)  # type: ignore[arg-type]
    assert fake.called("save_state") == []


def test_a_script_that_is_not_async_can_save(tmp_path: Path):
    paths = save_checkpoint(training(FakeService()), "a", tmp_path, {"batch": 1})
    assert list(paths) == ["state_path"]


async def test_the_blocking_save_also_works_where_a_loop_runs(tmp_path: Path):
    save_checkpoint(training(FakeService()), "a", tmp_path, {"batch": 1})
    assert len(load_checkpoints_file(tmp_path)) == 1


def test_the_last_checkpoint_is_the_newest_that_can_do_what_is_asked(tmp_path: Path):
    for name, paths in (
        ("a", {"state_path": "s1", "sampler_path": "p1"}),
        ("b", {"state_path": "s2"}),
    ):
        append_record(tmp_path, CheckpointRecord.from_dict({"name": name, **paths}))

    resume, sample = get_last_checkpoint(tmp_path), get_last_checkpoint(tmp_path, "sampler_path")
    assert resume is not None
    assert sample is not None
    assert (resume.name, sample.name) == ("b", "a")
    assert get_last_checkpoint(tmp_path / "elsewhere") is None


def test_a_cut_last_line_is_tolerated_and_a_bad_one_before_it_is_not(tmp_path: Path):
    """Trap 24."""
    path = tmp_path / "checkpoints.jsonl"
    path.write_text('{"name": "a", "state_path": "s"}\n{"name": "b", "sta')
    assert [record.name for record in load_checkpoints_file(tmp_path)] == ["a"]

    path.write_text('{"name": "a"}\n{"batch": 3}\n')
    with pytest.raises(CheckpointError, match="without a name"):
        load_checkpoints_file(tmp_path)
    path.write_text('{"name": "a"}\n{"na\n{"name": "c"}\n')
    with pytest.raises(CheckpointError, match="line 2"):
        load_checkpoints_file(tmp_path)


# ------------------------------------------------------------------- manager


async def drive(manager: CheckpointManager, client, steps: int) -> None:
    for done in range(1, steps + 1):
        await client.optim_step(STEP)
        await manager.maybe_save(done, {"batch": done})


async def test_periodic_and_rolling_saves_come_when_they_are_due(tmp_path: Path):
    fake = FakeService()
    client = training(fake)
    manager = CheckpointManager(
        client, fake, tmp_path, save_every=4, rolling_save_every=1, ttl_seconds=9999
    )
    await drive(manager, client, 5)
    await manager.save_final({"batch": 5})

    records = load_checkpoints_file(tmp_path)
    assert [(record.name, record.get("rolling", False)) for record in records] == [
        ("000001", True), ("000002", True), ("000003", True), ("000004", False), ("000005", True),
        ("final", False),
    ]  # fmt: skip
    assert [record.has("sampler_path") for record in records] == [False] * 3 + [True, False, True]
    assert fake.deleted == [records[i].state_path for i in (0, 1, 2)]
    assert records[-1].final
    kept = {record.name: fake.checkpoints[record.state_path or ""] for record in records[3:]}
    assert {name: saved.ttl_seconds for name, saved in kept.items()} == {
        "000004": 9999, "000005": 7200, "final": None,
    }  # fmt: skip


async def test_nothing_is_due_before_the_first_step_or_without_an_interval(tmp_path: Path):
    fake = FakeService()
    client = training(fake)
    assert not CheckpointManager(client, fake, tmp_path, save_every=2).is_due(0)
    await drive(CheckpointManager(client, fake, tmp_path), client, 3)
    assert load_checkpoints_file(tmp_path) == []


async def test_saves_by_tokens_count_from_the_last_one(tmp_path: Path):
    fake = FakeService()
    manager = CheckpointManager(training(fake), fake, tmp_path, save_every_tokens=100)
    for step, tokens in enumerate((60, 120, 180, 230), start=1):
        await manager.maybe_save(step, {"batch": step}, tokens=tokens)
    assert [record.name for record in load_checkpoints_file(tmp_path)] == ["000002", "000004"]


async def test_a_save_in_the_background_holds_the_weights_of_its_step(tmp_path: Path):
    fake = FakeService(latency_s=0.005)
    client = training(fake)
    manager = CheckpointManager(client, fake, tmp_path, save_every=1, async_periodic_saves=True)
    client.optim_step(STEP)
    assert await manager.maybe_save(1, {"batch": 1}) is None
    client.optim_step(STEP)
    assert load_checkpoints_file(tmp_path) == []  # not yet confirmed

    await manager.finish()
    [record] = load_checkpoints_file(tmp_path)
    assert fake.checkpoints[record.state_path or ""].steps == 1


async def test_a_failure_in_the_background_surfaces_at_the_end(tmp_path: Path):
    fake = FakeService(fail=lambda c: RuntimeError("full") if c.name == "save_state" else None)
    manager = CheckpointManager(
        training(fake), fake, tmp_path, save_every=1, async_periodic_saves=True
    )
    await manager.maybe_save(1, {"batch": 1})
    with pytest.raises(RuntimeError, match="full"):
        await manager.finish()


async def test_a_replaced_checkpoint_that_cannot_be_deleted_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    fake = FakeService(fail=lambda c: RuntimeError("gone") if c.name.startswith("delete") else None)
    client = training(fake)
    await drive(CheckpointManager(client, fake, tmp_path, rolling_save_every=1), client, 2)
    assert "could not be deleted: gone" in caplog.text


def test_a_negative_interval_is_refused(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="save_every=-1"):
        CheckpointManager(None, FakeService(), tmp_path, save_every=-1)


# ------------------------------------------------------------------ renderers


async def test_the_renderer_of_a_checkpoint_is_the_one_noted_with_its_run():
    fake = FakeService()
    path = (await training(fake).save_state("x")).path

    found = await checkpoint_utils.get_renderer_name_from_checkpoint_async(fake, path)
    assert found == "qwen3"
    assert checkpoint_utils.get_renderer_name_from_checkpoint(fake, path) == "qwen3"


def test_a_named_renderer_wins_and_asks_nobody():
    found = checkpoint_utils.resolve_renderer_name_from_checkpoint_or_default(
        model_name="Qwen/Qwen3-0.6B",
        explicit_renderer_name="llama3",
        load_checkpoint_path="tinker://x",
    )
    assert found == "llama3"


@pytest.mark.parametrize(("noted", "expected"), [("llama3", "llama3"), (None, "qwen3")])
async def test_the_checkpoints_renderer_comes_before_the_models(
    noted: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
):
    fake = FakeService()
    metadata = {} if noted is None else {"renderer_name": noted}
    client = await fake.create_lora_training_client("m", 8, user_metadata=metadata)
    path = (await client.save_state("x")).path

    async def connect(**named: object) -> Service:
        return Service(fake)

    monkeypatch.setattr(Service, "connect", connect)
    found = await checkpoint_utils.resolve_renderer_name_from_checkpoint_or_default_async(
        model_name="Qwen/Qwen3-0.6B", explicit_renderer_name=None, load_checkpoint_path=path
    )
    assert found == expected
