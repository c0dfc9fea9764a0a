"""Where runs go, and what becomes of a folder that is there already."""

import io
import sys
from pathlib import Path

import pytest

from mint.recipe.cli_utils import check_log_dir, runs_path
from mint.recipe.exceptions import ConfigurationError


def a_run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("{}\n")
    return folder


def test_runs_go_below_the_folder_that_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MINT_RUNS_DIR", raising=False)
    assert runs_path("a", "b") == str(Path("runs/a/b"))
    monkeypatch.setenv("MINT_RUNS_DIR", "/data")
    assert runs_path("a") == "/data/a"


def test_a_new_folder_is_fine_whatever_is_said(tmp_path: Path):
    for behavior in ("delete", "resume", "ask", "raise"):
        check_log_dir(str(tmp_path / "new"), behavior)
    assert not (tmp_path / "new").exists()


def test_resume_leaves_a_run_and_delete_removes_it(tmp_path: Path):
    folder = a_run(tmp_path)
    check_log_dir(str(folder), "resume")
    assert (folder / "metrics.jsonl").exists()
    check_log_dir(str(folder), "delete")
    assert not folder.exists()


@pytest.mark.parametrize("behavior", ["raise", "ask"])
def test_without_anybody_to_ask_a_run_is_left_and_the_way_out_is_named(
    tmp_path: Path, behavior, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "stdin", io.StringIO("d\n"))
    folder = a_run(tmp_path)
    with pytest.raises(ConfigurationError, match="resume"):
        check_log_dir(str(folder), behavior)
    assert (folder / "metrics.jsonl").exists()


def test_on_a_terminal_it_is_asked_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Typed("delete\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    folder = a_run(tmp_path)
    check_log_dir(str(folder), "ask")

    out, err = capsys.readouterr()
    assert not folder.exists()
    assert (out, "[d]elete it" in err) == ("", True)


def test_a_folder_that_is_no_run_is_not_deleted(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigurationError, match="does not look like"):
        check_log_dir(str(tmp_path), "delete")
    assert (tmp_path / "thesis.tex").exists()


def test_an_unknown_behavior_is_refused(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="overwrite"):
        check_log_dir(str(tmp_path), "overwrite")  # type: ignore[arg-type]
