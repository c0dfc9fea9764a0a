"""Sums as problems: what they reward, and two steps of them against a real server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recipes.math_rl.arithmetic import SumEnv, SumsDatasetBuilder
from recipes.math_rl.train import Settings, make_config
from tests.recipe.tokens import ByteTokenizer

from mint.client.settings import EMBEDDED_MODEL
from mint.recipe.renderers import get_renderer
from mint.testing import LocalService

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("12", 1.0), ("5 + 7 = 12", 0.9), ("13", 0.0), ("It is 13.", -0.1), ("", -0.1)],
)
async def test_right_earns_one_and_more_than_a_number_costs_a_tenth(answer, reward):
    tokenizer = ByteTokenizer()
    env = SumEnv(get_renderer("role_colon", tokenizer), 5, 7)

    result = await env.step(tokenizer.encode(f" {answer}\n\nUser:"))

    assert result.reward == pytest.approx(reward)
    assert result.episode_done


def test_a_run_of_defaults_tests_what_it_learns():
    config = make_config(Settings(model_name="x", log_path="y"))

    assert isinstance(config.dataset_builder, SumsDatasetBuilder)
    assert config.dataset_builder.test_batches > 0
    assert config.eval_every == 10


def test_two_steps_train_a_model(shared_service: LocalService, tmp_path: Path):
    done = subprocess.run(
        [
            sys.executable, "-m", "recipes.math_rl.train", f"model_name={EMBEDDED_MODEL}", "steps=2",
            "batch_size=2", "group_size=2", "lora_rank=4", "eval_every=1", f"log_path={tmp_path}",
        ],
        env=shared_service.environment(),
        cwd=REPOSITORY, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    rows = [json.loads(row) for row in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]  # the last one is the final evaluation's
    assert all("test/env/all/reward/total" in row for row in rows)
