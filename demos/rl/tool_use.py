"""Environment tool use: a model learns to compute with Python, in an episode of several turns.

    python demos/rl/tool_use.py

The model writes a program, a sandbox runs it, the output comes back as a message, and the model
answers. The numbers are too large for a small model's head, so the tool has to be used, and well.

Settings: MINT_BASE_MODEL, MINT_LORA_RANK, and MINT_RL_STEPS, _BATCH, _GROUP, _LR, _MAX_TOKENS and
_TEMPERATURE. What to expect is in demos/README.md.
"""

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

import chz

from mint import recipe
from mint.recipe import EnvFromMessageEnv, Message, MessageEnv, MessageStepResult
from mint.recipe.checkpoint_utils import get_last_checkpoint
from mint.recipe.grading import number_matches
from mint.recipe.messages import get_text_content
from mint.recipe.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder
from mint.recipe.sandbox import PYTHON, Limits, Sandbox
from mint.rl_core import RLConfig

DEFAULTS = {
    "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "steps": 12,
    "batch": 6,
    "group": 8,
    "lr": 5e-4,
    "max_tokens": 32,
}
"""Where the environment says nothing: what the embedded model learns with in minutes."""

# ------------------------------------------------------------------- the task

FORMS = {
    "{a} * {b} + {c}": lambda a, b, c: a * b + c,
    "{c} - {a} * {b}": lambda a, b, c: c - a * b,
    "({a} + {b}) * {c}": lambda a, b, c: (a + b) * c,
}


@dataclass(frozen=True)
class Question:
    """Its text and its answer are made of the same numbers."""

    form: str
    a: int
    b: int
    c: int

    @classmethod
    def drawn(cls, draw: random.Random) -> "Question":
        a, b, c = draw.randint(10, 99), draw.randint(10, 99), draw.randint(100, 999)
        return cls(draw.choice(list(FORMS)), a, b, c)

    @property
    def expression(self) -> str:
        return self.form.format(a=self.a, b=self.b, c=self.c)

    @property
    def text(self) -> str:
        return f"What is {self.expression}?"

    @property
    def answer(self) -> int:
        return FORMS[self.form](self.a, self.b, self.c)


def episode(question: Question) -> list[Message]:
    """An episode as it should go."""
    return [
        {"role": "user", "content": question.text},
        {"role": "assistant", "content": f"```python\nprint({question.expression})\n```"},
        {"role": "user", "content": f"Output: {question.answer}"},
        {"role": "assistant", "content": str(question.answer)},
    ]


EXAMPLES = [
    *episode(Question("{a} * {b} + {c}", 21, 34, 5)),
    *episode(Question("{c} - {a} * {b}", 17, 6, 812)),
]
"""Shown before each question: from them a small model knows that there is a tool, and its form."""

PROGRAM = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)
MOST_PROGRAMS = 2
"""Of one episode. What the model says after them is its answer, whatever it is."""


class Calculation(MessageEnv):
    """One question. The right answer is worth 1, any other 0."""

    def __init__(self, question: Question, sandbox: Sandbox) -> None:
        self.question = question
        self.sandbox = sandbox
        self.programs = 0
        self.messages: list[Message] = [*EXAMPLES, {"role": "user", "content": question.text}]

    async def initial_observation(self) -> list[Message]:
        return self.messages

    async def step(self, message: Message) -> MessageStepResult:
        text = get_text_content(message)
        program = PROGRAM.search(text)
        if program is None or self.programs == MOST_PROGRAMS:
            is_right = number_matches(text, self.question.answer)
            return MessageStepResult(
                reward=float(is_right),
                episode_done=True,
                next_messages=[],
                metrics={"programs": self.programs},
            )
        self.programs += 1
        output = f"Output: {await self.output_of(program[1])}"
        self.messages = [*self.messages, message, {"role": "user", "content": output}]
        return MessageStepResult(reward=0.0, episode_done=False, next_messages=self.messages)

    async def output_of(self, program: str) -> str:
        """What a program prints, or else the last line of what it complains about."""
        limits = Limits(wall_s=5, output_bytes=10_000)
        result = await self.sandbox.run({"main.py": program}, (*PYTHON, "main.py"), limits)
        shown = result.stdout.strip() or (result.stderr.splitlines() or ["nothing"])[-1]
        return shown[:100]


# --------------------------------------------------------------- the training


@dataclass(frozen=True)
class Attempts(EnvGroupBuilder):
    """Several attempts at one question."""

    question: Question
    config: RLConfig
    sandbox: Sandbox

    async def make_envs(self) -> Sequence[EnvFromMessageEnv]:
        model = self.config.model
        renderer = recipe.renderers.get_renderer(
            recipe.get_recommended_renderer_name(model), recipe.get_tokenizer(model)
        )
        return [
            EnvFromMessageEnv(renderer, Calculation(self.question, self.sandbox))
            for _ in range(self.config.group)
        ]


class Calculations(RLDataset):
    """Batch i has the same questions whenever it is asked for, so that a run can resume."""

    def __init__(self, config: RLConfig, sandbox: Sandbox) -> None:
        self.config = config
        self.sandbox = sandbox

    def get_batch(self, index: int) -> Sequence[Attempts]:
        draw = random.Random(index)
        questions = [Question.drawn(draw) for _ in range(self.config.batch)]
        return [Attempts(question, self.config, self.sandbox) for question in questions]

    def __len__(self) -> int:
        return self.config.steps


@chz.chz
class CalculationsBuilder(RLDatasetBuilder):
    config: RLConfig
    sandbox: Sandbox

    async def __call__(self) -> tuple[Calculations, None]:
        return Calculations(self.config, self.sandbox), None  # None: no test set


def report(step: recipe.rl.train.FinishedStep) -> None:
    accuracy = sum(reward > 0 for reward in step.rewards) / len(step.rewards)
    print(f"Step {step.index + 1}: accuracy={accuracy:.1%}, datums={step.datums}", flush=True)


def main(config: RLConfig) -> None:
    with Sandbox() as sandbox:
        run = recipe.rl.train.Config(
            dataset_builder=CalculationsBuilder(config=config, sandbox=sandbox),
            model_name=config.model,
            lora_rank=config.rank,
            learning_rate=config.lr,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            remove_constant_reward_groups=True,  # of which there is nothing to learn
            eval_every=0,
        )
        asyncio.run(recipe.rl.train.main(run, on_step=report))
    saved = get_last_checkpoint(run.log_path, "sampler_path")
    assert saved is not None, "a run that has ended has saved"
    print(f"Saved: {saved.sampler_path}")


if __name__ == "__main__":
    main(RLConfig.from_env(**DEFAULTS))
