"""Prompts, answers and advantages: the same for every system that is measured.

Needs the standard library only, so that a rival in an environment of its own can read it.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class RLShape:
    """The size of one RL step."""

    prompts: int
    group: int
    """Samples of each prompt."""
    prompt_tokens: int
    jitter: int
    """Prompt lengths lie evenly between `prompt_tokens` less this and plus this."""
    max_tokens: int
    """Sampled tokens; every sequence has exactly so many, since nothing ends it earlier."""

    def as_json(self) -> dict[str, int]:
        return asdict(self)

    def prompt_lengths(self) -> list[int]:
        last = max(1, self.prompts - 1)
        return [
            self.prompt_tokens + round(self.jitter * (2 * i / last - 1))
            for i in range(self.prompts)
        ]


SHORT = RLShape(prompts=8, group=6, prompt_tokens=24, jitter=4, max_tokens=16)
LONG = RLShape(prompts=4, group=8, prompt_tokens=256, jitter=0, max_tokens=128)


def arithmetic_prompts(encode: Encode, step: int, shape: RLShape) -> list[list[int]]:
    """Questions in English, cut at the left to their length, with solved examples where a
    question alone is too short. Each step has others."""
    rng = random.Random(1000 + step)
    made = []
    for length in shape.prompt_lengths():
        text = f"Question: What is {rng.randint(11, 99)} * {rng.randint(101, 999)}?\nAnswer:"
        tokens = list(encode(text))
        while len(tokens) < length:
            a, b = rng.randint(11, 99), rng.randint(101, 999)
            tokens = [*encode(f"Question: What is {a} * {b}?\nAnswer: {a * b}\n\n"), *tokens]
        made.append(tokens[-length:])
    return made


def group_advantages(step: int, shape: RLShape) -> list[list[float]]:
    """Per prompt: rewards of 0 or 1, drawn, less the mean of their group; never all alike."""
    rng = random.Random(2000 + step)
    made = []
    for _ in range(shape.prompts):
        rewards = [float(rng.random() < 0.5) for _ in range(shape.group)]
        if shape.group > 1 and len(set(rewards)) == 1:
            rewards[0] = 1.0 - rewards[0]
        mean = statistics.fmean(rewards)
        made.append([reward - mean for reward in rewards])
    return made


SAMPLED_LOGPROB = -12.0
"""Of a random token: about what the model gives it, so that ratios are near 1."""


@dataclass(frozen=True)
class Answer:
    """One datum of a training pass: tokens of prompt and answer, and its advantage."""

    tokens: list[int]
    prompt_length: int
    advantage: float


def random_answers(
    groups: int, per_group: int, prompt: int, length: int, vocabulary: int
) -> list[Answer]:
    """Groups of answers to shared prompts, of random tokens; a group's advantages sum to 0.

    Args:
        prompt: tokens of a prompt, up to 4 more or less below 64 (real ones differ, which costs
            whoever pads).
        length: tokens of an answer.
    """
    rng = random.Random(0)
    spread = 4 if prompt < 64 else 0
    made = []
    for _ in range(groups):
        question = random_tokens(rng, prompt + rng.randint(-spread, spread), vocabulary)
        rewards = [rng.random() for _ in range(per_group)]
        mean = statistics.fmean(rewards) if per_group > 1 else 0.0
        for reward in rewards:
            tokens = question + random_tokens(rng, length, vocabulary)
            made.append(Answer(tokens, len(question), reward - mean))
    return made


def random_tokens(rng: random.Random, count: int, vocabulary: int) -> list[int]:
    """Ids that are no special token of the models used here, which have theirs at either end."""
    return [rng.randrange(100, min(vocabulary, 40_000)) for _ in range(count)]
