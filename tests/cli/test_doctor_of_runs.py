"""mint doctor RUN_FOLDER says what a training run had to learn from."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.recipe.rl.test_run_health import CUT, FINE, run

from mint.cli.main import main


def asked(*arguments: str | Path):
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def test_a_healthy_run(tmp_path):
    shown = asked(run(tmp_path, FINE, FINE))

    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[:4] == [
        "2 steps, 16 episodes in 4 groups; mean reward 0.000 at first, 0.100 at last.",
        "Nothing to advise: steps had rewards to learn from.",
        "",
        "SHARE OF                                  IN ALL STEPS  IN THE LAST",
    ]


def test_a_run_that_could_not_learn_is_exit_status_1_and_says_why(tmp_path):
    shown = asked(run(tmp_path, FINE, CUT))

    assert shown.exit_code == 1
    assert "1 of 2 steps: Could not learn: all episodes hit max_tokens=64 (8 of 8)" in shown.output
    assert "episodes cut by length                    50%           100%" in shown.output


def test_the_same_for_scripts(tmp_path):
    shown = asked(run(tmp_path, CUT), "--json")
    told = json.loads(shown.stdout)

    assert shown.exit_code == 1
    assert told["ok"] is False
    assert "raise max_tokens" in told["lines"][1]
    assert told["steps"][0]["health/episodes_cut_by_length"] == 1.0


def test_what_is_no_run_folder_is_one_line(tmp_path):
    shown = asked(tmp_path)

    assert shown.exit_code == 1
    assert "is no run folder: it has no metrics.jsonl" in shown.output
    assert "Traceback" not in shown.output


@pytest.mark.parametrize("option", [["--parity"], ["--base-url", "http://127.0.0.1:9"]])
def test_a_run_is_examined_alone(tmp_path, option):
    shown = asked(run(tmp_path, FINE), *option)

    assert shown.exit_code == 2
    assert "leave the other options out" in shown.output
