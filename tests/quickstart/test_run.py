"""The quickstart as a person runs it: a process of its own, against a real server."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mint.client.settings import EMBEDDED_MODEL as MODEL
from mint.testing import LocalService
from mint.testing.service import without_settings

SCRIPT = Path(__file__).parents[2] / "quickstart" / "custom_reward.py"
STEP = re.compile(
    r"Step (\d+): avg_reward=(\d\.\d{3}), exact_rate=(\d\.\d{3}), format_rate=(\d\.\d{3}), "
    r"datums=(\d+)"
)
SMALL = {
    "MINT_BASE_MODEL": MODEL,
    "MINT_LORA_RANK": "4",
    "MINT_CUSTOM_REWARD_STEPS": "2",
    "MINT_CUSTOM_REWARD_BATCH": "3",
    "MINT_CUSTOM_REWARD_GROUP": "4",
    "MINT_CUSTOM_REWARD_MAX_TOKENS": "6",
}


def quickstart(environment: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=dict(environment), cwd=folder, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(
    shared_service: LocalService, tmp_path_factory: pytest.TempPathFactory
) -> subprocess.CompletedProcess[str]:
    return quickstart(shared_service.environment(**SMALL), tmp_path_factory.mktemp("cwd"))


def test_it_prints_a_line_a_step_and_the_saved_path(finished: subprocess.CompletedProcess[str]):
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    steps = [found for line in lines if (found := STEP.fullmatch(line))]

    assert [int(step[1]) for step in steps] == [1, 2]
    assert all(int(step[5]) <= 12 for step in steps)
    assert [re.sub(r"//[^/]+/", "//ID/", line) for line in lines if line.startswith("Saved")] == [
        "Saved: tinker://ID/weights/custom-reward-2"
    ]


def test_the_command_it_prints_asks_the_trained_model(
    finished: subprocess.CompletedProcess[str], shared_service: LocalService, tmp_path: Path
):
    command = next(line for line in finished.stdout.splitlines() if "mint sample" in line)

    answer = subprocess.run(
        ["bash", "-c", command.strip()],
        env=shared_service.environment(), cwd=tmp_path, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip

    assert answer.returncode == 0, answer.stderr


def test_the_same_seed_gives_the_same_curve(
    finished: subprocess.CompletedProcess[str], shared_service: LocalService, tmp_path: Path
):
    again = quickstart(shared_service.environment(**SMALL), tmp_path)

    assert STEP.findall(again.stdout) == STEP.findall(finished.stdout) != []


def test_settings_come_from_a_dotenv_file_too(tmp_path: Path):
    (tmp_path / ".env").write_text("MINT_LORA_RANK=none\n")

    refused = quickstart(without_settings(SMALL | {"PATH": "/usr/bin"}), tmp_path)

    assert refused.returncode == 2
    assert "Cannot start: MINT_LORA_RANK='none'" in refused.stderr


def test_a_key_the_server_does_not_know_is_exit_code_2(
    shared_service: LocalService, tmp_path: Path
):
    refused = quickstart(shared_service.environment(MINT_API_KEY="sk-wrong", **SMALL), tmp_path)

    assert refused.returncode == 2
    assert "refuses the API key" in refused.stderr


def test_a_model_that_is_not_offered_is_exit_code_2_and_the_offer_is_shown(
    shared_service: LocalService, tmp_path: Path
):
    refused = quickstart(
        shared_service.environment(**{**SMALL, "MINT_BASE_MODEL": "nobody/nothing"}), tmp_path
    )

    assert refused.returncode == 2
    assert "nobody/nothing" in refused.stderr
    assert f"This server offers: {MODEL}." in refused.stderr
