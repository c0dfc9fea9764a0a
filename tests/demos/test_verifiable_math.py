"""Sums and differences: question and answer are of the same numbers, and the right one trains."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demos.rl.verifiable_math import EXAMPLES, Question, VerifiableMath
from tests.recipe.tokens import ByteTokenizer
from tests.rl_core import world

from mint.recipe.tokenizers import register_tokenizer, unregister_tokenizer
from mint.rl_core import run_grpo

EVERY_QUESTION = [Question(a, sign, b) for a in range(10) for b in range(10) for sign in ("+", "-")]


def as_read(text: str) -> int:
    """The value of the one expression in a text, worked out apart from the demo."""
    found = re.fullmatch(r"What is (\d) ([+-]) (\d)\?", text)
    assert found is not None, text
    a, sign, b = found.groups()
    return int(a) + int(b) * (1 if sign == "+" else -1)


def test_every_question_rewards_its_right_answer_and_no_other_number():
    adapter = VerifiableMath(questions=1)
    for question in EVERY_QUESTION:
        right = as_read(question.text)
        rewards = [adapter.compute_reward(f"{n}<|im_end|>", question) for n in range(-10, 20)]
        assert rewards == [float(n == right) for n in range(-10, 20)], question


def test_the_examples_are_right():
    assert [example.answer for example in EXAMPLES] == [as_read(one.text) for one in EXAMPLES]


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("3 - 8 = -5<|im_end|>", 1.0),
        ("\u22125", 1.0),
        ("5", 0.0),
        ("-5 or 4", 0.0),
        ("", 0.0),
    ],
)
def test_the_last_number_with_its_sign_counts(response: str, reward: float):
    assert VerifiableMath(1).compute_reward(response, Question(3, "-", 8)) == reward


def test_each_step_has_new_questions_and_a_seed_has_always_the_same():
    one, other = VerifiableMath(questions=8, seed=3), VerifiableMath(questions=8, seed=3)
    first = one.build_dataset()

    assert first == other.build_dataset()
    assert first != one.build_dataset()
    assert set(first) <= set(EVERY_QUESTION)


class ChatTokenizer(ByteTokenizer):
    """Bytes, with a chat template as plain as can be."""

    def apply_chat_template(self, messages: Any, *, add_generation_prompt: bool) -> list[int]:
        assert add_generation_prompt
        return self.encode("\n".join(message["content"] for message in messages) + "\n")


@pytest.fixture
def tokenizer() -> Iterator[ChatTokenizer]:
    """Of the model "test/chat"."""
    one = ChatTokenizer()
    register_tokenizer("test/chat", lambda: one)
    yield one
    unregister_tokenizer("test/chat")


def test_right_answers_among_wrong_ones_are_trained(
    tokenizer: ChatTokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def half_right(prompt: list[int], params: Any) -> world.Answer:
        nonlocal asked
        asked += 1
        question = tokenizer.decode(prompt).strip().splitlines()[-1]
        answer = tokenizer.encode(str(as_read(question) + asked % 2))
        return [*answer, tokenizer.eos_token_id], [-0.5] * (len(answer) + 1), "stop"

    asked = 0
    fake = world.FakeService(half_right, tokenizer=tokenizer, base_model="test/chat")
    config = world.config(tmp_path, model="test/chat", steps=2, batch=3, group=4)

    run_grpo(VerifiableMath(questions=3), config, service_client=fake)

    steps = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Step")]
    assert steps == [f"Step {n}: accuracy=50.0%, datums=12" for n in (1, 2)]
