"""The folder of a run: opened, described, and set right before a resume."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.stores.run_folder import RunFolder, git_revision
from mint.recipe.stores.timing import Span, StepTimes


def with_rows(tmp_path: Path, *steps: int) -> RunFolder:
    folder = RunFolder(tmp_path)
    for step in steps:
        folder.append_row({"step": step, "reward": step / 2})
    return folder


def steps_in(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_the_folder_is_made_wherever_the_path_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunFolder("~/deep/run").path == tmp_path / "deep" / "run"
    assert (tmp_path / "deep" / "run").is_dir()


def test_a_folder_belongs_to_one_run_until_that_ends_however_it_ends(tmp_path: Path):
    folder = RunFolder(tmp_path)
    another = pytest.raises(ConfigurationError, match="another run is writing there")
    with folder.held(), another, RunFolder(tmp_path).held():
        raise AssertionError("two runs in one folder")
    assert list(tmp_path.iterdir()) == []

    with pytest.raises(RuntimeError), folder.held():
        raise RuntimeError("the run failed")
    other = f"from mint.recipe.stores.run_folder import *\nwith RunFolder({str(tmp_path)!r}).held(): pass"
    subprocess.run([sys.executable, "-c", other], check=True)


def test_the_config_is_written_for_people(tmp_path: Path):
    RunFolder(tmp_path).write_config({"a": 1, "name": "線"})
    assert (tmp_path / "config.json").read_text() == '{\n  "a": 1,\n  "name": "線"\n}\n'


def test_rows_that_a_resume_runs_again_are_moved_away(tmp_path: Path):
    folder = with_rows(tmp_path, 0, 1, 2, 3)

    assert folder.move_rows_from(2) == 2
    assert steps_in(folder.metrics) == [0, 1]
    assert steps_in(tmp_path / "metrics.jsonl.pre_resume_000002") == [2, 3]


def test_after_a_resume_each_step_has_one_row(tmp_path: Path):
    folder = with_rows(tmp_path, 0, 1, 2)
    for first in (2, 1):  # killed twice
        folder.move_rows_from(first)
        for step in range(first, 3):
            folder.append_row({"step": step})
    assert steps_in(folder.metrics) == [0, 1, 2]


def test_with_nothing_to_move_nothing_changes(tmp_path: Path):
    folder = with_rows(tmp_path, 0, 1)
    before = folder.metrics.stat().st_mtime_ns

    assert folder.move_rows_from(2) == 0
    assert folder.metrics.stat().st_mtime_ns == before
    assert RunFolder(tmp_path / "new").move_rows_from(0) == 0
    assert not list(tmp_path.glob("*pre_resume*"))


def test_a_row_that_was_being_written_is_no_row(tmp_path: Path):
    folder = with_rows(tmp_path, 0, 1)
    with folder.metrics.open("a") as file:
        file.write('{"step": 2, "rew')
    folder.move_rows_from(1)
    folder.append_row({"step": 1})
    assert steps_in(folder.metrics) == [0, 1]


def test_the_spans_of_a_step_are_one_line_and_a_trace_one_line_each(tmp_path: Path):
    times = StepTimes()
    times.spans = [Span("train", 1.0, 2.0), Span("rollout", 0.0, 1.5)]
    folder = RunFolder(tmp_path)
    folder.append_times(4, times, trace=True)

    [line] = (tmp_path / "timing_spans.jsonl").read_text().splitlines()
    assert [span["name"] for span in json.loads(line)["spans"]] == ["rollout", "train"]
    assert json.loads(line)["step"] == 4
    events = [json.loads(e) for e in (tmp_path / "trace_events.jsonl").read_text().splitlines()]
    assert [(e["name"], e["tid"], e["dur"]) for e in events] == [
        ("rollout", 0, 1.5e6), ("train", 1, 2e6),  # they overlap: a row each
    ]  # fmt: skip


def test_a_span_chart_names_its_spans_and_is_safe(tmp_path: Path):
    times = StepTimes()
    times.spans = [Span("<b>", 0.0, 1.0), Span("train", 1.0, 1.0)]
    RunFolder(tmp_path).write_span_chart(3, times)

    page = (tmp_path / "timing_gantt_000003.html").read_text()
    assert "Step 3: 2.00 s" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert page.count("<rect") == 2


def test_the_revision_of_a_repository_is_its_commit(tmp_path: Path):
    assert git_revision(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert git_revision(tmp_path) is None  # no commit yet
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)

    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert git_revision(tmp_path) == head.stdout.strip()
