"""A run's folder tells what its steps had to learn from."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mint.recipe.exceptions import DataFormatError
from mint.recipe.rl.diagnosis import StepHealth, examine_run

FINE: dict[str, Any] = {
    "episodes": 8, "groups": 2, "largest_group": 4, "groups_equal": 0, "datums": 8,
    "datums_without_signal": 0, "reward_highest": 1.0,
}  # fmt: skip
CUT = {**FINE, "groups_equal": 2, "cut": 8, "cut_at_max_tokens": 8, "never_graded": 8,
       "reward_lowest": -0.1, "reward_highest": -0.1, "datums_without_signal": 8}  # fmt: skip
SOLVED = {**FINE, "groups_equal": 2, "reward_lowest": 1.0, "datums_without_signal": 8}
STALE = {**FINE, "gap_mean": 0.4, "gap_max": 2.0, "ratios_clipped": 0.6}


def run(folder: Path, *steps: dict[str, Any], **config: Any) -> Path:
    """A run folder with one row per step; rewards are 0, 1, 2, ... tenths."""
    rows = [
        {
            "step": index,
            "env/all/reward/total": index / 10,
            **StepHealth(**step, max_tokens=64).metrics(),
        }
        for index, step in enumerate(steps)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config.json").write_text(json.dumps({"max_tokens": 64, **config}))
    return folder


def test_a_healthy_run_is_summed_up_in_two_lines(tmp_path):
    health = examine_run(run(tmp_path, FINE, FINE, FINE))

    assert health.is_healthy
    assert health.lines() == [
        "3 steps, 24 episodes in 6 groups; mean reward 0.000 at first, 0.200 at last.",
        "Nothing to advise: steps had rewards to learn from.",
    ]


def test_the_page_as_a_finished_run(tmp_path):
    health = examine_run(run(tmp_path, CUT))

    assert not health.is_healthy
    assert health.lines()[1:] == [
        "1 of 1 step: Could not learn: all episodes hit max_tokens=64 (8 of 8), so the environment "
        "was never called and no reward was computed: raise max_tokens or use a non-thinking "
        "renderer."
    ]


def test_one_lost_step_in_ten_is_as_it_should_be_and_three_are_told(tmp_path):
    assert examine_run(run(tmp_path, CUT, *[FINE] * 9)).is_healthy

    told = examine_run(run(tmp_path, *[CUT] * 3, *[FINE] * 7)).lines()

    assert told[1].startswith("3 of 10 steps: Could not learn: all episodes hit max_tokens=64")
    assert len(told) == 2


def test_a_run_that_has_solved_its_problems_is_not_ill(tmp_path):
    assert examine_run(run(tmp_path, FINE, SOLVED, SOLVED)).is_healthy


def test_frequent_blemishes_are_told_although_steps_could_learn(tmp_path):
    spoilt = {**FINE, "cut": 3, "parse_errors": 2, "over_context": 1, "groups_failed": 1}

    told = examine_run(run(tmp_path, spoilt, spoilt)).lines()

    assert told[1:] == [
        "2 groups failed: see rollout_errors/ and the log.",
        "6 of 16 episodes were cut by their length: raise max_tokens or use a non-thinking "
        "renderer.",
        "4 of 16 episodes had answers that could not be parsed: check the renderer.",
    ]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"async_config": {"max_steps_off_policy": 2}}, "lower max_steps_off_policy"),
        ({"temperature": 0.7}, "does the server scale its loss by temperature=0.7?"),
        ({}, "`mint doctor --parity` compares"),
    ],
)
def test_a_trainer_far_from_its_sampler_is_told_with_the_likely_reason(tmp_path, config, says):
    told = examine_run(run(tmp_path, STALE, **config)).lines()

    assert "differ by 0.4 nats a token" in told[1]
    assert says in told[1]
    assert told[2].startswith("60% of sampled tokens have a ratio that ppo would clip")


def test_a_loss_that_is_no_number_is_told_even_of_one_step(tmp_path):
    broken = {**FINE, "loss_is_finite": False}

    told = examine_run(run(tmp_path, *[FINE] * 20, broken)).lines()

    assert told[1].startswith("1 of 21 steps: Could not learn: the loss")


def test_shares_are_given_in_the_mean_and_at_last(tmp_path):
    shares = {name: rest for name, *rest in examine_run(run(tmp_path, CUT, FINE)).shares()}

    assert shares["episodes cut by length"] == [0.5, 0.0]
    assert shares["groups with equal rewards"] == [0.5, 0.0]


def test_rows_without_health_are_passed_over(tmp_path):
    run(tmp_path, FINE)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "test/env/all/reward/total": 0.5}\n')
        file.write('{"step": 2, "health/epi')  # the process was killed here

    assert len(examine_run(tmp_path).steps) == 1


def test_a_run_of_something_else_is_not_called_healthy(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "env/all/reward/total": 1.0}\n')

    health = examine_run(tmp_path)

    assert not health.is_healthy
    assert "no step has health/ numbers" in health.lines()[0]


def test_what_is_no_run_folder_is_refused(tmp_path):
    with pytest.raises(DataFormatError, match=r"it has no metrics\.jsonl"):
        examine_run(tmp_path)
    run(tmp_path, FINE)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataFormatError, match=r"config\.json is no JSON"):
        examine_run(tmp_path)


def test_looking_at_a_folder_loads_no_sdk(tmp_path):
    script = (
        "import sys; from mint.recipe.rl.run_health import examine_run; "
        "examine_run(sys.argv[1]).lines(); print({'tinker', 'torch'} & set(sys.modules))"
    )
    arguments = [sys.executable, "-c", script, str(run(tmp_path, FINE))]

    assert subprocess.run(arguments, capture_output=True, text=True).stdout.strip() == "set()"


def test_every_episode_that_was_not_scored_is_told_although_steps_could_learn(tmp_path):
    unscored = {**FINE, "scored_too_late": 1, "scoring_failed": 2}

    found = examine_run(run(tmp_path, *[FINE] * 9, unscored))

    assert not found.is_healthy
    assert found.lines()[1:] == [
        "1 of 80 episodes were not scored in time and got timeout_score: raise the adapter's "
        "timeout_s, or make its scoring faster.",
        "2 of 80 episodes could not be scored and got error_score: the log `error` of each such "
        "episode, in iteration_*/, names what failed.",
    ]
    assert ("episodes whose scoring failed", 0.025, 0.25) in found.shares()


def test_runs_without_an_adapter_have_no_line_of_it_among_the_shares(tmp_path):
    named = [what for what, _, _ in examine_run(run(tmp_path, FINE)).shares()]

    assert "episodes not scored in time" not in named
    assert "episodes whose scoring failed" not in named


def test_a_step_without_one_scored_episode_is_told_once(tmp_path):
    nothing_scored = {**FINE, "groups_equal": 2, "scored_too_late": 8, "reward_highest": 0.0,
                      "datums_without_signal": 8}  # fmt: skip

    assert examine_run(run(tmp_path, nothing_scored)).lines()[1:] == [
        "1 of 1 step: Could not learn: no answer was scored in time (8 of 8), so every reward is "
        "timeout_score: raise the adapter's timeout_s, or make its scoring faster."
    ]
