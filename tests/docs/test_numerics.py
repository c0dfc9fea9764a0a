"""Every statement of the page on numerics names tests, and the default run has them."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

from docs import numerics

PAGES = [Path("docs/en/numerics.md"), Path("docs/zh/numerics.md")]
_TEST = re.compile(r"\[`(test_\w+)`\]\(\.\./\.\./(tests/[\w/]+\.py)\)")
_MADE = re.compile(r"<!-- table: .*?<!-- end -->", re.DOTALL)


def named(text: str) -> list[str]:
    """Node ids of the tests in a text, in order."""
    return [f"{path}::{name}" for name, path in _TEST.findall(text)]


def statements(page: Path) -> list[str]:
    """The rows of the tables whose last column says "test"."""
    found, inside = [], False
    for line in _MADE.sub("", (ROOT / page).read_text()).splitlines():
        if not line.startswith("|"):
            inside = False
        elif re.search(r"\| (test|测试) \|$", line):
            inside = True
        elif inside and not line.startswith("| ---"):
            found.append(line)
    return found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_statement_names_a_test(page: Path):
    assert len(statements(page)) > 40
    assert [line for line in statements(page) if not named(line)] == []


def test_both_pages_name_the_same_tests_for_as_many_statements():
    english, chinese = ([named(line) for line in statements(page)] for page in PAGES)

    assert english == chinese


def default_run() -> list[str]:
    """What `make test` tells pytest to choose; how it spreads that over processes does not matter."""
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(r"^test:.*\n\t@\$\(BIN\)/python -m pytest (.*?) \$\(", makefile, re.MULTILINE)
    assert found, "the Makefile's verb `test` has changed its form"
    return shlex.split(found[1])


def collected(ids: set[str]) -> set[str]:
    """Those that pytest finds for the default run, in a process of its own."""
    command = [sys.executable, "-m", "pytest", *default_run(), "--collect-only", *sorted(ids)]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode != pytest.ExitCode.USAGE_ERROR, ran.stderr
    return {line.partition("[")[0] for line in ran.stdout.splitlines() if "::" in line}


def test_every_test_that_is_named_runs_by_default(request: pytest.FixtureRequest):
    """A whole run has collected them already; for a run of this file alone pytest is asked."""
    left_out = re.findall(r"not (\w+)", " ".join(default_run()))
    assert "slow" in left_out
    here = {
        item.nodeid.partition("[")[0]
        for item in request.session.items
        if not any(item.get_closest_marker(mark) for mark in left_out)
    }

    missing = set(named((ROOT / PAGES[0]).read_text())) - here

    assert not missing or missing - collected(missing) == set()


def test_figures_of_a_real_model_are_read_from_the_results(tmp_path: Path):
    def say(sentence: str) -> str:
        return sentence

    _, before = numerics.real_model(say, tmp_path)
    assert {row[1] for row in before} == {"not measured"}

    gaps = {"logprob_gap_mean": 0.0234, "logprob_gap_max": 0.15}
    off = {"engine": {"error": 0.0612, "cosine": 0.998}, "peft": {"error": 0.07, "cosine": 0.99}}
    (tmp_path / "parity_bfloat16.json").write_text(json.dumps(gaps))
    cases = {"cases": dict.fromkeys(numerics.CASES, off)}
    (tmp_path / "real_text_bf16.json").write_text(json.dumps(cases))

    _, rows = numerics.real_model(say, tmp_path)
    assert [row[1] for row in rows] == [
        "not measured", "2.3e-02, 1.5e-01", *["0.061, 0.998; 0.070, 0.990"] * 4,
    ]  # fmt: skip
    assert "results/real_text_bf16.json" in rows[-1][2]
