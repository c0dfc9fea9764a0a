"""Where a run's numbers and words go, and where they do not."""

import asyncio
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.stores.metrics_log import open_logger, setup_logging

log = logging.getLogger("mint.recipe.test")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_row_has_its_step_first_and_its_numbers_in_order(tmp_path: Path):
    with open_logger(tmp_path) as logger:
        logger.log_metrics({"b": 1.5, "a": 2, "step": 7}, step=3)
        assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 3, "b": 1.5, "a": 2}\n'


def test_the_config_is_written_when_the_log_is_opened(tmp_path: Path):
    open_logger(tmp_path, config={"rate": 1.0}).close()
    assert json.loads((tmp_path / "config.json").read_text()) == {"rate": 1.0}


def test_a_table_goes_to_stderr_and_nothing_to_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """Trap 27, for loops of one's own."""
    with setup_logging(str(tmp_path)) as logger:
        logger.log_metrics({"reward": 0.123456789, "episodes": 4}, step=2)
        logger.log_long_text("sample", "some text")
        logger.log_summary({"best": 1.0})
        log.warning("careful")

    out, err = capfd.readouterr()
    assert out == ""
    assert "Step 2" in err
    assert "reward    0.123457" in err


# ------------------------------------------------------------------ log lines


def test_log_lines_of_the_package_are_kept_and_other_loggers_are_left_alone(tmp_path: Path):
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with open_logger(tmp_path):
        log.info("a line of ours")
        logging.getLogger("somebody").warning("not ours")
        assert (root.level, list(root.handlers)) == before

    kept = (tmp_path / "logs.log").read_text()
    assert "a line of ours" in kept
    assert "not ours" not in kept


def test_closing_takes_our_handlers_away(tmp_path: Path):
    before = list(logging.getLogger("mint.recipe").handlers)
    with open_logger(tmp_path):
        pass
    assert logging.getLogger("mint.recipe").handlers == before


async def test_runs_side_by_side_keep_their_lines_apart(tmp_path: Path):
    async def run(name: str) -> None:
        with open_logger(tmp_path / name):
            await asyncio.sleep(0)
            await asyncio.to_thread(log.info, "from %s", name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for name in ("a", "b"):
            tasks.create_task(run(name))

    assert "from a" in (tmp_path / "a" / "logs.log").read_text()
    assert "from b" not in (tmp_path / "a" / "logs.log").read_text()


def test_warnings_reach_stderr_where_the_script_has_set_up_no_logging(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with open_logger(tmp_path):
        log.info("quiet")
        log.warning("loud")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "WARNING mint.recipe.test: loud\n")


def test_a_script_with_logging_of_its_own_gets_no_second_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(sys.stderr)])
    with open_logger(tmp_path):
        log.warning("once")
    assert capfd.readouterr().err.count("once") == 1


def test_a_record_keeps_within_its_line_whatever_a_model_wrote(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with open_logger(tmp_path):
        log.warning("said: %s", "\x1b[2J\x1b]0;mine\x07\r\u202e\nERROR mint.recipe: all is lost")

    err = capfd.readouterr().err
    assert err == (
        "WARNING mint.recipe.test: said: [U+001B][2J[U+001B]]0;mine[U+0007][U+000D][U+202E]\n"
        "    ERROR mint.recipe: all is lost\n"
    )
    assert (
        (tmp_path / "logs.log").read_text().endswith(err.removeprefix("WARNING mint.recipe.test"))
    )


# -------------------------------------------------------------- other trackers


def test_a_tracker_is_used_only_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    logged: list[Any] = []
    run = SimpleNamespace(
        url="https://tracker.invalid/run",
        log=lambda values, step=None: logged.append((step, values)),
        config=SimpleNamespace(update=lambda values, allow_val_change: logged.append(values)),
        summary=SimpleNamespace(update=logged.append),
        finish=lambda: logged.append("finished"),
    )
    asked: list[dict[str, Any]] = []
    tracker = SimpleNamespace(init=lambda **named: asked.append(named) or run)
    monkeypatch.setitem(sys.modules, "wandb", tracker)

    with open_logger(tmp_path / "without") as logger:
        logger.log_metrics({"a": 1}, 0)
        assert logger.get_logger_url() is None
    assert asked == []

    with open_logger(tmp_path / "with", wandb_project="p", config={"rate": 1}) as logger:
        logger.log_metrics({"a": float("nan")}, 0)
        assert logger.get_logger_url() == "https://tracker.invalid/run"
    assert asked == [{"project": "p", "name": None, "dir": str(tmp_path / "with")}]
    assert logged == [{"rate": 1}, (0, {"a": None}), "finished"]
    assert rows(tmp_path / "with") == [{"step": 0, "a": None}]


def test_a_tracker_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigurationError, match="wandb is not installed"):
        open_logger(tmp_path, wandb_project="p")
