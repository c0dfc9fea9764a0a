"""Two steps of each demo, as a person starts it, against a real server with a tiny model."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mint.client.settings import EMBEDDED_MODEL
from mint.testing import LocalService

DEMOS = Path(__file__).parents[2] / "demos" / "rl"


@pytest.mark.parametrize("demo", ["verifiable_math", "preference_chat", "tool_use"])
def test_two_steps_print_their_accuracy_and_where_the_weights_are(
    demo: str, shared_service: LocalService, tmp_path: Path
):
    done = subprocess.run(
        [sys.executable, str(DEMOS / f"{demo}.py")],
        env=shared_service.environment(
            MINT_BASE_MODEL=EMBEDDED_MODEL, MINT_LORA_RANK="4", MINT_RL_STEPS="2",
            MINT_RL_BATCH="1", MINT_RL_GROUP="2", MINT_RL_MAX_TOKENS="8",
        ),
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    *before, first, second, saved = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in before] in ([], ["Model"])
    for number, line in ((1, first), (2, second)):
        assert re.fullmatch(rf"Step {number}: accuracy=\d+\.\d%, datums=\d+", line)
    assert re.fullmatch(r"Saved: tinker://\S+", saved)
