"""The guessing game: its rules, and two steps of it against a real server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recipes import multi_turn_rl as script

from mint.client.settings import EMBEDDED_MODEL
from mint.recipe.rl.message_env import MessageStepResult
from mint.testing import LocalService


async def play(secret: int, answers: list[str], guesses: int = 4) -> list[MessageStepResult]:
    env = script.GuessingEnv(secret, highest=10, guesses=guesses)
    return [await env.step({"role": "assistant", "content": answer}) for answer in answers]


@pytest.mark.parametrize("secret", range(1, 11))
async def test_who_halves_what_is_left_always_finds_the_number(secret):
    env, low, high, total = script.GuessingEnv(secret, highest=10, guesses=4), 1, 10, 0.0
    while True:
        guess = (low + high) // 2
        result = await env.step({"role": "assistant", "content": str(guess)})
        total += result.reward
        if result.episode_done:
            break
        heard = result.next_messages[-1]["content"]
        low, high = (guess + 1, high) if heard == "Higher." else (low, guess - 1)

    assert total == 1.0
    assert result.metrics["solved"] == 1.0


async def test_a_guess_that_was_ruled_out_costs():
    first, second, third = await play(8, ["5", "3", "9"])

    assert [one.reward for one in (first, second, third)] == [0.0, script.WASTED, 0.0]
    assert first.next_messages[-1]["content"] == "Higher."


async def test_an_answer_without_a_number_costs_and_rules_nothing_out():
    first, second = await play(8, ["my guess", "8"])

    assert (first.reward, second.reward) == (script.WASTED, 1.0)
    assert first.next_messages[-1]["content"] == "Reply with only a number."


async def test_the_conversation_grows_by_what_was_said():
    first, second = await play(8, ["5", "9"])

    assert second.next_messages[: len(first.next_messages)] == first.next_messages
    assert [one["role"] for one in second.next_messages[-4:]] == ["assistant", "user"] * 2


async def test_a_game_ends_after_its_last_guess():
    *_, last = await play(8, ["5", "6"], guesses=2)

    assert last.episode_done
    assert last.metrics == {"solved": 0.0, "guesses": 2}


def test_a_batch_is_always_the_same_and_a_model_has_a_folder_of_its_own():
    settings = script.read_settings({"MINT_BASE_MODEL": "org/m", "MINT_LOG_ROOT": "/logs"})
    dataset = script.GuessingDataset(settings, "r")

    assert dataset.get_batch(3) == dataset.get_batch(3)
    assert len(dataset) == 20
    assert settings.log_path == "/logs/mint-multi-turn-rl-m"


def test_a_group_of_one_is_refused():
    with pytest.raises(script.SetupError, match="MINT_MULTI_TURN_GROUP='1'"):
        script.read_settings({"MINT_MULTI_TURN_GROUP": "1"})


def test_two_steps_train_a_model(shared_service: LocalService, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, script.__file__],
        env=shared_service.environment(
            MINT_BASE_MODEL=EMBEDDED_MODEL, MINT_LORA_RANK="4", MINT_LOG_ROOT=str(tmp_path),
            MINT_MULTI_TURN_STEPS="2", MINT_MULTI_TURN_BATCH="2", MINT_MULTI_TURN_GROUP="2",
        ),
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Server supports 1 models"
    assert lines[-2:] == ["Starting RL training loop...", "Training complete."]
    [folder] = tmp_path.glob("mint-multi-turn-rl-*")
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [0, 1]
