"""Sums as problems: one question, one answer, right or wrong."""

import random
import re
from collections.abc import Sequence
from functools import partial

import chz

from mint import recipe
from mint.recipe.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from mint.recipe.rl.types import RLDataset, RLDatasetBuilder

EXAMPLES: list[recipe.Message] = [
    message
    for a, b in ((4, 3), (2, 6), (9, 5), (7, 8))
    for message in (
        recipe.Message(role="user", content=f"What is {a} + {b}?"),
        recipe.Message(role="assistant", content=str(a + b)),
    )
]
"""Said before each question: they show the form of an answer. Without them a small model talks
instead, and is right so rarely that most groups have nothing to compare."""


class SumEnv(ProblemEnv):
    """What is a + b? A right answer is worth 1, and one that is more than a number costs 0.1."""

    def __init__(self, renderer: recipe.renderers.Renderer, a: int, b: int) -> None:
        super().__init__(renderer, convo_prefix=EXAMPLES)
        self.a = a
        self.b = b

    def get_question(self) -> str:
        return f"What is {self.a} + {self.b}?"

    def check_answer(self, text: str) -> bool:
        return recipe.grading.number_matches(text, self.a + self.b)

    def check_format(self, text: str) -> bool:
        return re.fullmatch(r"\s*-?\d+\s*", text) is not None

    def get_reference_answer(self) -> str:
        return str(self.a + self.b)


class SumsDataset(RLDataset):
    """Batches of sums, drawn from the batch's number: the same ones whenever asked for."""

    def __init__(
        self,
        batches: int,
        builder: "SumsDatasetBuilder",
        renderer: recipe.renderers.Renderer,
        part: str,
    ) -> None:
        self.batches = batches
        self.builder = builder
        self.renderer = renderer
        self.part = part

    def get_batch(self, index: int) -> Sequence[ProblemGroupBuilder]:
        one = self.builder
        rng = random.Random(f"{one.seed} {self.part} {index}")
        group_size = one.group_size if self.part == "train" else 1
        return [
            ProblemGroupBuilder(
                env_thunk=partial(
                    SumEnv, self.renderer, rng.randint(0, one.highest), rng.randint(0, one.highest)
                ),
                num_envs=group_size,
                dataset_name="sums",
            )
            for _ in range(one.batch_size)
        ]

    def __len__(self) -> int:
        return self.batches


@chz.chz
class SumsDatasetBuilder(RLDatasetBuilder):
    """Sums of two numbers up to `highest`, to train on and to test on."""

    model_name: str
    renderer_name: str
    steps: int
    batch_size: int = 8
    """Questions a step."""
    group_size: int = 8
    """Answers a question."""
    highest: int = 9
    """Of the numbers to be added."""
    test_batches: int = 2
    """Of questions to test on, each answered once."""
    seed: int = 0

    async def __call__(self) -> tuple[SumsDataset, SumsDataset | None]:
        tokenizer = recipe.get_tokenizer(self.model_name)
        renderer = recipe.renderers.get_renderer(self.renderer_name, tokenizer)
        test = SumsDataset(self.test_batches, self, renderer, "test") if self.test_batches else None
        return SumsDataset(self.steps, self, renderer, "train"), test
