"""Two steps of each demo against a real server with a tiny model."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.rl_core.world import run_script

from mint.client.settings import EMBEDDED_MODEL
from mint.testing import LocalService

DEMOS = Path(__file__).parents[2] / "demos" / "rl"


@pytest.fixture
def settings(shared_service: LocalService) -> dict[str, str]:
    return shared_service.environment(
        MINT_BASE_MODEL=EMBEDDED_MODEL, MINT_LORA_RANK="4", MINT_RL_STEPS="2", MINT_RL_BATCH="1",
        MINT_RL_GROUP="2", MINT_RL_MAX_TOKENS="8",
    )  # fmt: skip


def check(lines: Sequence[str]) -> None:
    """Two accuracies, and where the weights are."""
    *before, first, second, saved = lines
    assert [line.partition(":")[0] for line in before] in ([], ["Model"])
    for number, line in ((1, first), (2, second)):
        assert re.fullmatch(rf"Step {number}: accuracy=\d+\.\d%, datums=\d+", line)
    assert re.fullmatch(r"Saved: tinker://\S+", saved)


@pytest.mark.filterwarnings("ignore::mint.recipe.sandbox.WeakIsolationWarning")
@pytest.mark.parametrize("demo", ["verifiable_math", "tool_use"])
def test_two_steps_print_their_accuracy_and_where_the_weights_are(
    demo: str, settings: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run_script(DEMOS / f"{demo}.py", tmp_path, settings)

    check(capsys.readouterr().out.splitlines())


def test_so_does_a_demo_that_a_person_starts(settings: dict[str, str], tmp_path: Path):
    done = subprocess.run(
        [sys.executable, str(DEMOS / "preference_chat.py")],
        env=settings, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    check(done.stdout.splitlines())
