"""Clocks, turns, medians, names and results."""

import argparse
import itertools
import json
from pathlib import Path

import pytest
from benchmarks.harness import Phases, Took
from benchmarks.workloads import (
    LONG,
    SHORT,
    RLShape,
    arithmetic_prompts,
    group_advantages,
    random_answers,
)

from benchmarks import harness


def test_systems_take_turns():
    order: list[str] = []

    took = harness.in_turns({name: lambda name=name: order.append(name) for name in "ab"}, 3)

    assert "".join(order) == "ababab"
    assert [len(rounds) for rounds in took.values()] == [3, 3]


def test_wall_and_cpu_have_medians_of_their_own():
    assert harness.median([Took(1, 30), Took(2, 10), Took(9, 20)]) == Took(2, 20)


def test_a_ratio_above_one_means_that_ours_is_quicker():
    assert harness.ratios(Took(6, 9), Took(3, 3)) == {"ratio_cpu": 3.0, "ratio_wall": 2.0}


def test_work_is_timed_by_the_clock_of_whoever_does_it():
    clock = itertools.count(10, 5)

    assert harness.timed(lambda: None, lambda: float(next(clock))).cpu_s == 5.0


def test_phases_add_up_to_the_step():
    clock = iter([0.0, 2.0, 5.0])
    phases = Phases(lambda: next(clock))

    phases.end("sample")
    phases.end("fb")

    assert (phases.row["sample_cpu_s"], phases.row["fb_cpu_s"]) == (2.0, 3.0)
    assert phases.row["step_cpu_s"] == 5.0
    assert phases.row["step_s"] == phases.row["sample_s"] + phases.row["fb_s"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ([], "x"),
        (["--long"], "x_long"),
        (["--long", "--threads", "2"], "x_long_2threads"),
        (["--dtype", "bfloat16"], "x_bfloat16"),
    ],
)
def test_a_result_is_named_by_what_makes_it_another_claim(given: list[str], name: str):
    parser = harness.arguments("A question.")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--dtype", default="float32")

    assert harness.result_name("x", parser.parse_args(given), "long") == name


def test_a_result_is_written_only_where_it_is_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    args = argparse.Namespace(threads=1, save=True, trl=None)
    told = harness.before(args)

    assert harness.report("x", {"ratio": 2}, told, save=False) is None
    path = harness.report("x", {"ratio": 2}, told, save=True)

    assert path
    assert json.loads(path.read_text()) == json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads(path.read_text())["workload"] == {"threads": 1}


def test_prompts_have_the_lengths_of_their_shape_and_differ_from_step_to_step():
    lengths = [
        [len(prompt) for prompt in arithmetic_prompts(str.encode, 0, shape)]
        for shape in (SHORT, LONG)
    ]

    assert lengths == [[20, 21, 22, 23, 25, 26, 27, 28], [256] * 4]
    assert arithmetic_prompts(str.encode, 0, SHORT) != arithmetic_prompts(str.encode, 1, SHORT)
    assert arithmetic_prompts(str.encode, 1, SHORT) == arithmetic_prompts(str.encode, 1, SHORT)


def test_every_group_has_something_to_learn_and_sums_to_zero():
    shape = RLShape(prompts=40, group=2, prompt_tokens=8, jitter=0, max_tokens=4)

    for group in group_advantages(0, shape):
        assert sum(group) == pytest.approx(0)
        assert set(group) == {-0.5, 0.5}


def test_answers_of_a_group_share_its_prompt():
    answers = random_answers(2, 3, 24, 16, vocabulary=259)

    prompts = [tuple(one.tokens[: one.prompt_length]) for one in answers]
    assert len(answers) == 6
    assert len(set(prompts[:3])) == len(set(prompts[3:])) == 1
    assert len({tuple(one.tokens) for one in answers}) == 6
