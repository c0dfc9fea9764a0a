"""The sweep of the page: its pieces, and two steps of its grid against a real server."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from recipes import rl_hyperparameters as script
from tests.recipe.pages.test_pages import assert_harmless

from mint import recipe
from mint.client.settings import EMBEDDED_MODEL
from mint.recipe import sweep
from mint.recipe.stores.sweep_record import (
    Entry,
    SweepRecord,
    write_record,
)
from mint.testing import LocalService

SCRIPT = Path(script.__file__)


# ------------------------------------------------------------ the environment


@pytest.mark.parametrize(
    ("answer", "reward", "correct"),
    [("12", 1.0, 1.0), (" 012\n", 1.0, 1.0), ("12, not 13", 1.0, 1.0), ("13", -0.25, 0.0), ("no", -0.25, 0.0),
     ("5 + 7 = 12", 1.0, 1.0), ("The sum of 5 and 7 is 12.", 1.0, 1.0), ("5 + 7", -0.25, 0.0),
     ("5 plus 7 equals 13, or 12", -0.25, 0.0)],
)  # fmt: skip
async def test_the_first_number_of_an_answer_counts(answer, reward, correct):
    env = script.ArithmeticMessageEnv("What is 5 + 7?", "12")

    result = await env.step({"role": "assistant", "content": answer})

    assert (result.reward, result.metrics) == (reward, {"correct": correct})
    assert result.episode_done


async def test_the_question_comes_behind_right_examples():
    messages = await script.ArithmeticMessageEnv("What is 5 + 7?", "12").initial_observation()

    assert [one["role"] for one in messages] == ["system", *["user", "assistant"] * 4, "user"]
    assert messages[-1]["content"] == "What is 5 + 7?"
    for question, answer in zip(messages[1:-1:2], messages[2:-1:2], strict=True):
        a, b = re.findall(r"\d+", str(question["content"]))
        assert answer["content"] == str(int(a) + int(b))


async def test_content_in_parts_is_read_without_its_thinking():
    env = script.ArithmeticMessageEnv("What is 5 + 7?", "12")
    message: recipe.Message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "13?"}, {"type": "text", "text": "12"}],
    }

    assert (await env.step(message)).reward == 1.0


async def test_every_question_rewards_its_answer_and_a_batch_is_always_the_same():
    dataset, test = await script.ArithmeticRLDatasetBuilder(
        batches=3, batch_size=4, group_size=2, renderer_name="r", model_name="m"
    )()

    assert len(dataset) == 3
    assert test is None
    assert dataset.get_batch(1) == dataset.get_batch(1)
    assert dataset.get_batch(0) != dataset.get_batch(1)
    for one in dataset.get_batch(2):
        a, b = re.findall(r"\d+", one.question)
        assert int(a) + int(b) == int(one.answer)


# ------------------------------------------------------------------ settings


def test_the_defaults_are_those_of_the_page():
    settings = script.read_settings({})

    assert (settings.base_model, settings.lora_rank, settings.steps) == ("Qwen/Qwen3-0.6B", 16, 1)
    assert settings.kl_coefs == [0.0, 0.02]
    assert settings.temperatures == [0.7, 1.0]
    assert settings.group_sizes == [2, 4]
    assert (settings.max_tokens, settings.learning_rate) == (64, 1e-5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MINT_RL_STEPS", "0"), ("MINT_RL_STEPS", "1,2"), ("MINT_RL_KL_COEFS", "0.1,,0.2"),
        ("MINT_RL_TEMPS", "0"), ("MINT_RL_GROUPS", "2.5"), ("MINT_RL_LR", "nan"),
        ("MINT_RL_KL_COEFS", "-1"), ("MINT_RL_TEMPS", "inf"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_refused_by_its_name(name, value):
    with pytest.raises(script.SetupError, match=f"{name}='{value}'"):
        script.read_settings({name: value})


def test_only_a_positive_coefficient_has_a_reference():
    settings = script.read_settings({"MINT_BASE_MODEL": "m"})

    free, held = (
        script.make_config(settings, "role_colon", "x", kl=kl, temp=1.0, group=2)
        for kl in (0.0, 0.02)
    )

    assert free.kl_reference_config is None
    assert held.kl_reference_config is not None
    assert held.kl_reference_config.base_model == "m"


def test_an_interrupted_sweep_of_the_same_settings_is_gone_on_with(tmp_path):
    settings = script.read_settings({"MINT_LOG_ROOT": str(tmp_path)})
    interrupted = tmp_path / "mint-rl-sweep-1700000000"
    entries = [
        Entry(one.name, one.settings, one.config.log_path, sweep.fingerprint(one.config))
        for one in script.make_grid(settings, "qwen3", str(interrupted))
    ]
    write_record(interrupted, SweepRecord("Sweep", tuple(entries)))
    other = script.read_settings({"MINT_LOG_ROOT": str(tmp_path), "MINT_RL_LR": "1e-3"})

    assert script.choose_stem(settings, "qwen3") == str(interrupted)
    assert script.choose_stem(other, "qwen3") != str(interrupted)


# ------------------------------------------------------------- the whole of it


@pytest.fixture(scope="module")
def finished(
    shared_service: LocalService, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], Path]:
    root = tmp_path_factory.mktemp("sweep")
    environment = shared_service.environment(
        MINT_BASE_MODEL=EMBEDDED_MODEL, MINT_LORA_RANK="4", MINT_RL_STEPS="2",
        MINT_RL_GROUPS="2", MINT_RL_MAX_TOKENS="8", MINT_LOG_ROOT=str(root),
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=environment, cwd=root, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    return done, root


ROW = re.compile(r"(\d\.\d\d) +(\d\.\d) +(\d) +(\d) +(-?\d\.\d{3}) +(\d\.\d\d|n/a) +(/\S+)")


def test_it_prints_the_page(finished):
    done, _ = finished
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()

    assert lines[0] == "Connecting to MinT server..."
    assert lines[2] == "Auth preflight: OK (1 supported models)"
    assert "Grid size:      2 x 2 x 1 = 4 configs" in lines
    assert len([line for line in lines if line.startswith("--- Training config: kl=")]) == 4
    assert "-" * 110 in lines
    rows = [found for line in lines if (found := ROW.fullmatch(line))]
    assert [(row[1], row[2], row[3], row[4]) for row in rows] == [
        ("0.00", "0.7", "2", "2"), ("0.00", "1.0", "2", "2"),
        ("0.02", "0.7", "2", "2"), ("0.02", "1.0", "2", "2"),
    ]  # fmt: skip


def test_every_configuration_has_metrics_and_a_final_checkpoint(finished):
    _, root = finished
    folders = sorted(root.glob("mint-rl-sweep-*-kl*"))

    assert len(folders) == 4
    for folder in folders:
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        [ledger] = (folder / "checkpoints.jsonl").read_text().splitlines()
        assert [row["step"] for row in rows] == [0, 1]
        assert json.loads(ledger)["state_path"].startswith("tinker://")
        assert ("kl_policy_base" in rows[-1]) == ("kl0p02" in folder.name)


def test_one_page_compares_them(finished):
    _, root = finished
    [page] = root.glob("mint-rl-sweep-*/sweep.html")

    text = page.read_text()
    assert "4 of 4" in text
    assert f"RL hyperparameters on {EMBEDDED_MODEL}" in text
    assert_harmless(text)


async def test_a_model_that_the_server_lacks_is_refused_with_those_it_has(
    shared_service, monkeypatch, tmp_path
):
    monkeypatch.setenv("MINT_BASE_URL", shared_service.url)
    monkeypatch.setenv("MINT_API_KEY", shared_service.key)

    with pytest.raises(script.SetupError, match=f"this server offers {EMBEDDED_MODEL}"):
        await script.run(
            script.read_settings({"MINT_BASE_MODEL": "other/model", "MINT_LOG_ROOT": str(tmp_path)})
        )
    assert list(tmp_path.iterdir()) == []
