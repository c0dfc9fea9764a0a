"""A small world for adapters: a fake service whose model answers by a script, in bytes.

`Sayings` is the policy: it gives the answers of each prompt in turn, so that a test knows who says what
whichever request comes first.
"""

import asyncio
import json
import os
import runpy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.recipe.fake_service import Answer, FakeService
from tests.recipe.rl.guessing import rows as rows
from tests.recipe.tokens import ByteTokenizer
from tinker import types

from mint import ModelInput
from mint.client.settings import EMBEDDED_MODEL
from mint.recipe.tokenizers import unregister_tokenizer
from mint.rl_core import Reward, RLAdapter, RLConfig

MODEL = "test/rl-core"
TOKENIZER = ByteTokenizer()
END = TOKENIZER.eos_token_id


class Sayings:
    """Answers a prompt with what is written for it (or for "", if nothing is), in turn."""

    def __init__(self, answers: Mapping[str, Sequence[str]], cut: Sequence[str] = ()) -> None:
        self.answers = answers
        self.cut = cut
        """Answers that end for their length."""
        self._turns: dict[str, count[int]] = defaultdict(count)

    def __call__(self, prompt: list[int], params: types.SamplingParams) -> Answer:
        asked = TOKENIZER.decode(prompt)
        key = next((text for text in self.answers if text and text in asked), "")
        lines = self.answers[key]
        line = lines[next(self._turns[key]) % len(lines)]
        tokens = TOKENIZER.encode(line)
        if line in self.cut:
            return tokens, [-0.5] * len(tokens), "length"
        return [*tokens, END], [-0.5] * (len(tokens) + 1), "stop"


def service(*answers: str, **named: Any) -> FakeService:
    """A service that answers every prompt with these in turn, and then again."""
    return saying(Sayings({"": answers or ("yes", "no")}), **named)


def saying(policy: Sayings, **named: Any) -> FakeService:
    return FakeService(policy, tokenizer=TOKENIZER, base_model=MODEL, **named)


def config(folder: Path, **fields: Any) -> RLConfig:
    """A run of one step with one prompt, two responses; in `folder`."""
    given = {"model": MODEL, "steps": 1, "batch": 1, "group": 2, "log_path": str(folder)}
    return RLConfig(**{**given, **fields})


class TokenizerClient:
    """A training client that answers for its tokenizer, and counts how often it was asked."""

    def __init__(self, tokenizer: Any = TOKENIZER) -> None:
        self.tokenizer = tokenizer
        self.asked = 0

    def get_tokenizer(self) -> Any:
        self.asked += 1
        return self.tokenizer


class SaysYes(RLAdapter):
    """1 for a yes."""

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        text = TOKENIZER.decode(response.to_ints())
        return Reward(float(text.startswith("yes")), {"length": len(text), "said": text})


class Repeats(RLAdapter):
    """Samples are words; 1 for saying the word, be it in a promise."""

    words: Sequence[str] = ("yes",)
    asked = 0

    def build_dataset(self) -> list[str]:
        self.asked += 1
        return list(self.words)

    def make_prompt(self, sample: str, tokenizer: Any) -> list[int]:
        return tokenizer.encode(f"say {sample}:")

    def compute_reward(self, response: str, sample: str) -> Any:
        return float(response == f"{sample}<|endoftext|>")


class StartsLoops(Repeats):
    """Each of its plain methods runs an event loop of its own, as one that asks a web API may."""

    def build_dataset(self) -> list[str]:
        return asyncio.run(self._later(["yes"]))

    def make_prompt(self, sample: str, tokenizer: Any) -> list[int]:
        return asyncio.run(self._later(super().make_prompt(sample, tokenizer)))

    def compute_reward(self, response: str, sample: str) -> Any:
        return asyncio.run(self._later(float(response.startswith("yes"))))

    def evaluate(self, step: int, rewards: Sequence[float], num_datums: int) -> None:
        asyncio.run(self._later(None))

    async def _later(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return value


class Promises(Repeats):
    """Its data set is a promise."""

    async def build_dataset(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ["yes"]


def run_script(script: Path, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a script as `python script` does, but in this process, which has imported most of what it
    needs; in `folder`, with this environment alone. Its model's tokenizer is forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            unregister_tokenizer(EMBEDDED_MODEL)


def summaries(folder: Path, step: int = 0) -> list[dict[str, Any]]:
    """What is written of each episode of a step."""
    path = folder / f"iteration_{step:06d}" / "train_rollout_summaries.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def prompts_of(fake: FakeService) -> list[str]:
    """What was asked, in order of the requests."""
    return [TOKENIZER.decode(call.arguments["prompt"].to_ints()) for call in fake.called("sample")]


def advantages(fake: FakeService) -> list[list[float]]:
    """Per forward_backward, the advantage of each datum's last token."""
    return [
        [
            round(datum.loss_fn_inputs["advantages"].tolist()[-1], 6)
            for datum in call.arguments["data"]
        ]
        for call in fake.called("forward_backward")
    ]
