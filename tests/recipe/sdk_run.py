"""Runs of the loop with whatever SDK the interpreter has, against a fake service and a real one.

    python -m tests.recipe.sdk_run FOLDER URL KEY MODEL

Prints the SDK's version and the rows of both runs as one JSON line, without what takes time. Nothing
of it is drawn: answers are greedy, and an episode's reward is its place in the group.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chz
import tinker
from tests.recipe.fake_service import FakeService
from tests.recipe.rl.guessing import Batches, alternating, config, guesses, rows

import mint
from mint import ModelInput
from mint.recipe.rl.config import Config, KLReferenceConfig
from mint.recipe.rl.train import main
from mint.recipe.rl.types import (
    ActionExtra,
    Env,
    EnvGroupBuilder,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)

PROMPT = list(b"2+3=")


class PlaceEnv(Env):
    """Two turns, of which the second extends the first; the reward is the place in the group."""

    def __init__(self, place: int) -> None:
        self._place = place
        self._said = PROMPT

    async def initial_observation(self) -> tuple[ModelInput, list[int]]:
        return ModelInput.from_ints(PROMPT), [10]

    async def step(self, action: list[int], *, extra: ActionExtra | None = None) -> StepResult:
        done = self._said is not PROMPT
        self._said = [*self._said, *action, 32]
        return StepResult(float(self._place), done, ModelInput.from_ints(self._said), [10])


@dataclass(frozen=True)
class PlaceGroup(EnvGroupBuilder):
    async def make_envs(self) -> Sequence[Env]:
        return [PlaceEnv(place) for place in range(3)]


@chz.chz
class PlaceData(RLDatasetBuilder):
    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return Batches([[PlaceGroup(), PlaceGroup()]]), None


def timeless(folder: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if not key.startswith("time/")}
        for row in rows(folder)
    ]


def against_fake(folder: Path) -> list[dict[str, Any]]:
    older = tuple(int(part) for part in tinker.__version__.split(".")[:2]) < (0, 38)
    service = FakeService(alternating(), sdk="0.22" if older else "0.38", drift=0.25)
    asyncio.run(
        main(
            config(
                folder, service, guesses(3), num_substeps=2, temperature=0.5, save_every=2,
                kl_penalty_coef=0.1, kl_reference_config=KLReferenceConfig(base_model="test/tiny"),
            )
        )
    )  # fmt: skip
    return timeless(folder)


def against_server(folder: Path, url: str, key: str, model: str) -> list[dict[str, Any]]:
    run = Config(
        learning_rate=1e-4,
        dataset_builder=PlaceData(),
        model_name=model,
        max_tokens=4,
        log_path=str(folder),
        service_client=mint.ServiceClient(base_url=url, api_key=key),
        lora_rank=4,
        temperature=0.0,
        num_groups_to_log=0,
        eval_every=0,
        kl_penalty_coef=0.1,
        kl_reference_config=KLReferenceConfig(base_model=model),
    )
    asyncio.run(main(run))
    return timeless(folder)


if __name__ == "__main__":
    to, url, key, model = sys.argv[1:]
    told = {
        "sdk": tinker.__version__,
        "fake": against_fake(Path(to) / "fake"),
        "server": against_server(Path(to) / "server", url, key, model),
    }
    print(json.dumps(told))
