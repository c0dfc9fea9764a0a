"""Who is told of a run while it goes on: its data sets of the weights, its script of each step."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chz
import pytest
from tests.recipe.fake_service import FakeService
from tests.recipe.rl import players
from tests.recipe.rl.guessing import (
    Batches,
    GuessGroup,
    alternating,
    config,
    guesses,
    records,
    rows,
)

from mint.recipe.rl.config import AsyncConfig, StreamMinibatchConfig
from mint.recipe.rl.dataset_utils import ChainedRLDataset, EpochCycledRLDataset
from mint.recipe.rl.interleaved import InterleavedRLDataset
from mint.recipe.rl.train import FinishedStep, main
from mint.recipe.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder


class Listening(Batches):
    """Remembers what it was told, and how many batches it had given by then."""

    def __init__(self, batches: Sequence[Sequence[EnvGroupBuilder]]) -> None:
        super().__init__(batches)
        self.told: list[Any] = []
        self.asked = 0
        self.asked_when_told: list[int] = []

    def get_batch(self, batch_idx: int) -> Sequence[EnvGroupBuilder]:
        self.asked += 1
        return super().get_batch(batch_idx)

    def bind(self, training_client: Any) -> None:
        self.told.append(training_client)
        self.asked_when_told.append(self.asked)


@chz.chz
class Given(RLDatasetBuilder):
    train: Any
    test: Any = None

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return self.train, self.test


def run(folder: Path, service: FakeService, data: Given, on_step: Any = None, **fields: Any):
    players.run(main(config(folder, service, [], dataset_builder=data, **fields), on_step=on_step))


def test_both_data_sets_are_told_of_the_training_client_before_their_first_batch(tmp_path: Path):
    service = FakeService(alternating())
    train, test = Listening(guesses(2)), Listening(guesses(1))

    run(tmp_path, service, Given(train=train, test=test), eval_every=1)

    assert train.told == test.told == service.training_clients
    assert train.asked_when_told == test.asked_when_told == [0]
    assert (train.asked, test.asked > 0) == (2, True)


def test_data_sets_made_of_others_tell_them():
    parts = [Listening(guesses(1)) for _ in range(3)]
    whole = ChainedRLDataset(
        [EpochCycledRLDataset(parts[0], 2), InterleavedRLDataset(parts[1:], [1, 1], 2)]
    )

    whole.bind("client")

    assert [part.told for part in parts] == [["client"]] * 3


class DataSetByItsMethods:
    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return guesses(1)[0]

    def __len__(self) -> int:
        return 1


def test_a_data_set_without_an_ear_is_left_alone(tmp_path: Path):
    run(tmp_path, FakeService(alternating()), Given(train=DataSetByItsMethods()))

    assert len(rows(tmp_path)) == 1


@pytest.mark.parametrize(
    "schedule",
    [
        {},
        {"stream_minibatch_config": StreamMinibatchConfig(groups_per_batch=2, num_minibatches=1)},
        {"async_config": AsyncConfig(max_steps_off_policy=0, groups_per_batch=2)},
    ],
    ids=["synchronous", "streaming", "asynchronous"],
)
def test_each_step_is_told_once_it_is_written_down(tmp_path: Path, schedule: dict[str, Any]):
    told: list[tuple[FinishedStep, int]] = []

    run(
        tmp_path, FakeService(alternating()), Given(train=Batches(guesses(2))),
        lambda step: told.append((step, len(rows(tmp_path)))), **schedule,
    )  # fmt: skip

    assert [step.index for step, _ in told] == [0, 1]
    assert [written for _, written in told] == [1, 2]
    for step, _ in told:
        assert sorted(step.rewards) == [0.0, 0.0, 1.0, 1.0]
        assert step.datums == 4
        assert step.row["env/all/reward/total"] == 0.5


def test_a_step_that_trained_nothing_says_so(tmp_path: Path):
    told: list[FinishedStep] = []
    batch = [GuessGroup(0, overflows=True)]

    run(tmp_path, FakeService(), Given(train=Batches([batch])), told.append)

    assert [(step.datums, step.rewards) for step in told] == [(0, [-0.1, -0.1])]


def test_a_coroutine_function_is_awaited_and_its_error_ends_the_run_after_the_step(tmp_path: Path):
    async def refuse(step: FinishedStep) -> None:
        raise OSError(f"step {step.index} cannot be told")

    with pytest.raises(OSError, match="step 0 cannot be told"):
        run(
            tmp_path, FakeService(alternating()), Given(train=Batches(guesses(2))), refuse,
            save_every=1,
        )  # fmt: skip

    assert len(rows(tmp_path)) == 1
    assert [record["batch"] for record in records(tmp_path)] == [1]
