"""The loop against a real server with a tiny model: what a fake service cannot show."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.recipe.rl.guessing import Data, records, rows

import mint
from mint import ModelInput
from mint.recipe.rl.config import AsyncConfig, Config, KLReferenceConfig
from mint.recipe.rl.train import main
from mint.recipe.rl.types import ActionExtra, Env, EnvGroupBuilder, StepResult
from mint.testing import LocalService


class EvenEnv(Env):
    """Two turns; each earns the share of even tokens among those said."""

    def __init__(self, place: int) -> None:
        self.said = [11, 12, 13 + place]
        self.turns = 0

    async def initial_observation(self) -> Any:
        return ModelInput.from_ints(self.said), [0]

    async def step(self, action: list[int], *, extra: ActionExtra | None = None) -> StepResult:
        self.turns += 1
        self.said = [*self.said, *action, 14]
        reward = sum(token % 2 == 0 for token in action) / len(action)
        return StepResult(reward, self.turns == 2, ModelInput.from_ints(self.said), [0])


@dataclass(frozen=True)
class EvenGroup(EnvGroupBuilder):
    place: int

    async def make_envs(self) -> Sequence[Env]:
        return [EvenEnv(self.place) for _ in range(4)]


@pytest.fixture(scope="module")
def client(shared_service: LocalService) -> Iterator[mint.ServiceClient]:
    connected = mint.ServiceClient(base_url=shared_service.url, api_key=shared_service.key)
    yield connected
    connected.close("success").result()


def run(folder: Path, client: Any, model: str, **fields: Any) -> None:
    config = Config(
        learning_rate=1e-2,
        dataset_builder=Data(batches=[[EvenGroup(0), EvenGroup(1)]] * 4),
        model_name=model,
        max_tokens=6,
        lora_rank=4,
        log_path=str(folder),
        service_client=client,
        num_groups_to_log=0,
        **{"max_steps": 2, **fields},
    )
    asyncio.run(main(config))


def test_at_another_temperature_trainer_reference_and_sampler_read_the_same_distribution(
    tmp_path: Path, client: Any, shared_service: LocalService
):
    run(
        tmp_path, client, shared_service.model, temperature=0.5, kl_penalty_coef=0.1,
        kl_reference_config=KLReferenceConfig(base_model=shared_service.model),
    )  # fmt: skip

    first, second = rows(tmp_path)
    assert first["optim/kl_sample_train_v2"] < 1e-8
    assert second["optim/kl_sample_train_v2"] < 1e-8
    assert abs(first["kl_policy_base"]) < 1e-4  # a new adapter is the base model
    assert second["kl_policy_base"] != first["kl_policy_base"]
    assert first["env/all/turns_per_episode"] == 2
    assert first["env/all/datums_per_episode"] == 1
    assert first["batch/groups_kept"] == 2


def test_read_at_temperature_one_the_same_tokens_look_off_policy(
    tmp_path: Path, client: Any, shared_service: LocalService
):
    run(
        tmp_path, client, shared_service.model, temperature=0.5, max_steps=1,
        loss_fn_config={"temperature": 1.0},
    )  # fmt: skip

    [row] = rows(tmp_path)
    assert row["optim/kl_sample_train_v2"] > 1e-3


def test_a_finished_run_goes_on_from_its_checkpoint(
    tmp_path: Path, client: Any, shared_service: LocalService
):
    run(tmp_path, client, shared_service.model, max_steps=1)

    run(tmp_path, client, shared_service.model, max_steps=2)

    assert [row["step"] for row in rows(tmp_path)] == [0, 1]
    assert [record["batch"] for record in records(tmp_path)] == [1, 2]
    assert rows(tmp_path)[1]["optim/kl_sample_train_v2"] < 1e-8


def test_the_asynchronous_schedule_trains_groups_of_older_weights(
    tmp_path: Path, client: Any, shared_service: LocalService
):
    mode = AsyncConfig(max_steps_off_policy=1, groups_per_batch=2)

    run(tmp_path, client, shared_service.model, max_steps=3, async_config=mode, loss_fn="ppo")

    assert [row["async/staleness_max"] for row in rows(tmp_path)] == [0, 1, 1]
    assert rows(tmp_path)[-1]["optim/kl_sample_train_v2"] > 1e-8  # sampled one step before
