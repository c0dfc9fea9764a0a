"""Verifiable math: a model learns sums and differences from whether its answers are right.

    python demos/rl/verifiable_math.py

The answer that a response is graded against is computed from the very numbers of its question.

Settings: MINT_BASE_MODEL, MINT_LORA_RANK, and MINT_RL_STEPS, _BATCH, _GROUP, _LR, _MAX_TOKENS and
_TEMPERATURE. What to expect is in demos/README.md.
"""

import random
from dataclasses import dataclass
from typing import Any

from mint.recipe.grading import number_matches
from mint.rl_core import RLAdapter, RLConfig, run_grpo

DEFAULTS = {
    "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "steps": 40,
    "batch": 8,
    "group": 8,
    "lr": 3e-4,
}
"""Where the environment says nothing: what the embedded model learns with in minutes."""


@dataclass(frozen=True)
class Question:
    a: int
    sign: str
    b: int

    @property
    def text(self) -> str:
        return f"What is {self.a} {self.sign} {self.b}?"

    @property
    def answer(self) -> int:
        return self.a + self.b if self.sign == "+" else self.a - self.b


EXAMPLES = [Question(4, "+", 3), Question(2, "-", 6), Question(9, "-", 5), Question(7, "+", 8)]
"""Shown before each question: from them a small model knows that a number is wanted."""


class VerifiableMath(RLAdapter):
    """Asks what a + b or a - b is. A right answer is worth 1, any other 0."""

    def __init__(self, questions: int, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.questions = questions
        self.random = random.Random(seed)

    def build_dataset(self) -> list[Question]:
        return [self.question() for _ in range(self.questions)]

    def question(self) -> Question:
        draw = self.random
        return Question(draw.randint(0, 9), draw.choice("+-"), draw.randint(0, 9))

    def make_prompt(self, sample: Question, tokenizer: Any) -> list[int]:
        messages = [message for example in EXAMPLES for message in conversation(example)]
        messages.append({"role": "user", "content": sample.text})
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True)

    def compute_reward(self, response: str, sample: Question) -> float:
        return float(number_matches(response, sample.answer))


def conversation(question: Question) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": question.text},
        {"role": "assistant", "content": str(question.answer)},
    ]


if __name__ == "__main__":
    config = RLConfig.from_env(**DEFAULTS)
    run_grpo(VerifiableMath(questions=config.batch), config)
