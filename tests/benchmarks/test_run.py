"""What `make bench` runs, and the children that wait for their turn."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks.children import Child

from benchmarks import run

ROOT = Path(__file__).parents[2]
PARSED_LATE = {"overhead", "startup", "quickstart_margin"}
"""They have no place of their own that reads arguments."""


@pytest.mark.parametrize("words", [*run.SHORT, *run.LONG])
def test_every_benchmark_of_the_sets_takes_its_arguments(
    words: str, monkeypatch: pytest.MonkeyPatch
):
    name, *given = words.split()
    assert (ROOT / "benchmarks" / f"{name}.py").exists()
    if name in PARSED_LATE:
        return
    module = __import__(f"benchmarks.{name}", fromlist=["main"])
    monkeypatch.setattr(module.harness, "before", _parsed)
    monkeypatch.setattr(sys, "argv", [name, *given])

    with pytest.raises(_Parsed):
        module.main()


class _Parsed(Exception):
    pass


def _parsed(_: object) -> None:
    raise _Parsed


def test_a_benchmark_that_fails_says_so_and_leaves_its_old_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    old = tmp_path / "quickstart_margin.json"
    old.write_text("old")

    assert not run.run("quickstart_margin --no-such-flag")
    assert old.read_text() == "old"


def test_a_result_goes_to_the_file_of_the_name_it_gives_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "RESULTS", tmp_path)

    run.keep('{"benchmark": "rl_step_long", "ratio_cpu": 2.0}\n')

    assert json.loads((tmp_path / "rl_step_long.json").read_text())["ratio_cpu"] == 2.0


CHILD = """
from benchmarks.children import Turns
turns = Turns()
print("noise")
turns.say({"ready": True})
turns.serve(lambda n: {"twice": 2 * n})
"""


def test_a_child_answers_each_turn_and_ends_with_its_input():
    with Child([sys.executable, "-c", CHILD]) as child:
        assert child.ready == {"ready": True}
        assert [child.work(n=n)["twice"] for n in (1, 2)] == [2, 4]

    assert child.status == 0


def test_a_child_that_dies_says_so():
    with pytest.raises(RuntimeError, match="status 3"):
        Child([sys.executable, "-c", "raise SystemExit(3)"])
