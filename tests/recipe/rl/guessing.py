"""A world to run the loop in: groups whose prompt is their number, rewarded by the token they say.

Token 1 earns 1, token 2 nothing. Prompts are `[100 + place]`, so that a datum tells which group it
is of.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import chz
from tests.recipe.fake_service import Answer, Call, FakeService
from tests.recipe.rl import players
from tinker import types

from mint import ModelInput
from mint.recipe.rl.config import Config
from mint.recipe.rl.train import main
from mint.recipe.rl.types import (
    ActionExtra,
    Env,
    EnvGroupBuilder,
    InitialObservationOverflow,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)

GOOD, BAD = 1, 2

REWARD = "env/all/reward/total"


class GuessEnv(Env):
    def __init__(self, group: "GuessGroup") -> None:
        self.group = group

    async def initial_observation(self) -> Any:
        if self.group.first is not None:
            await self.group.first(self.group.place)
        if self.group.overflows:
            return InitialObservationOverflow(reward=-0.1, metrics={"stop/max_tokens": 1.0})
        if self.group.raises is not None:
            raise self.group.raises
        return ModelInput.from_ints([100 + self.group.place]), [0]

    async def step(self, action: list[int], *, extra: ActionExtra | None = None) -> StepResult:
        reward = 1.0 if action[0] == GOOD else 0.0
        return StepResult(reward, True, ModelInput.empty(), [], metrics={"correct": reward})


@dataclass(frozen=True)
class GuessGroup(EnvGroupBuilder):
    place: int
    """In the data set, counted over all batches."""
    size: int = 2
    tag: str = ""
    overflows: bool = False
    raises: Exception | None = None
    first: Callable[[int], Awaitable[None]] | None = None
    """Awaited with the place before the first prompt of each member."""
    cleaned: list[int] = field(default_factory=list)
    """Gets the place of every group that is cleaned up."""

    async def make_envs(self) -> Sequence[Env]:
        return [GuessEnv(self) for _ in range(self.size)]

    async def cleanup(self) -> None:
        self.cleaned.append(self.place)

    def logging_tags(self) -> list[str]:
        return [self.tag] if self.tag else []


class Batches(RLDataset):
    def __init__(self, batches: Sequence[Sequence[EnvGroupBuilder]]) -> None:
        self.batches = batches

    def get_batch(  # pyright: ignore[reportIncompatibleMethodOverride] - a word of users
        self,
        batch_idx: int,
    ) -> Sequence[EnvGroupBuilder]:
        return self.batches[batch_idx]

    def __len__(self) -> int:
        return len(self.batches)


@chz.chz
class Data(RLDatasetBuilder):
    batches: Sequence[Sequence[EnvGroupBuilder]]
    test: Sequence[Sequence[EnvGroupBuilder]] | None = None
    client: Any = None

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return Batches(self.batches), None if self.test is None else Batches(self.test)


def guesses(batches: int, groups: int = 2, **fields: Any) -> list[list[GuessGroup]]:
    """Batches of groups, numbered through."""
    return [
        [GuessGroup(batch * groups + place, **fields) for place in range(groups)]
        for batch in range(batches)
    ]


def alternating() -> Callable[[list[int], types.SamplingParams], Answer]:
    """A policy whose every other answer is good, so that each pair differs in reward."""
    numbers = count()
    return lambda prompt, params: (
        [GOOD if next(numbers) % 2 == 0 else BAD, 0],
        [-0.5, -0.1],
        "stop",
    )


def always(token: int) -> Callable[[list[int], types.SamplingParams], Answer]:
    return lambda prompt, params: ([token, 0], [-0.5, -0.1], "stop")


def config(folder: Path, service: FakeService, batches: Any, **fields: Any) -> Config:
    """A run that writes no transcripts, which have tests of their own."""
    defaults = {
        "learning_rate": 1e-4,
        "dataset_builder": Data(batches=batches),
        "model_name": "test/tiny",
        "max_tokens": 8,
        "log_path": str(folder),
        "service_client": service,
        "num_groups_to_log": 0,
        "rollout_json_export": False,
        "eval_every": 0,
        "save_every": 0,
    }
    return Config(**{**defaults, **fields})


def run(*arguments: Any, **fields: Any) -> None:
    """Run a `config` to its end, which may leave no task behind."""
    players.run(main(config(*arguments, **fields)))


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "checkpoints.jsonl").read_text().splitlines()]


def places(call: Call) -> list[int]:
    """The groups that the datums of a forward_backward are of."""
    return [datum.model_input.to_ints()[0] - 100 for datum in call.arguments["data"]]


def training_calls(service: FakeService) -> list[str]:
    """What changed weights, in order: "fb" and "opt"."""
    short = {"forward_backward": "fb", "optim_step": "opt"}
    return [short[name] for name in service.names() if name in short]


def trained(service: FakeService) -> list[list[int]]:
    """Per forward_backward, the groups it trained, each once."""
    return [sorted(set(places(call))) for call in service.called("forward_backward")]
