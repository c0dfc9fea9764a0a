"""A test set played once, and names that keep evaluators apart."""

from pathlib import Path
from typing import Any

import pytest
from tests.recipe.fake_service import FakeSamplingClient, FakeService, Weights
from tests.recipe.rl.guessing import (
    GOOD,
    Batches,
    Data,
    GuessGroup,
    alternating,
    always,
    config,
    guesses,
)

from mint.recipe.eval.evaluators import SamplingClientEvaluator
from mint.recipe.exceptions import EvalError
from mint.recipe.rl.evaluation import (
    RLTestSetEvaluator,
    distinctly_named,
    merged_metrics,
    run_evaluations,
)
from mint.recipe.rl.rollout_strategy import MinViableGroup
from mint.recipe.rl.train import main


def sampler(service: FakeService) -> FakeSamplingClient:
    return FakeSamplingClient(service, Weights("test/tiny", 0, 0, 0))


async def test_a_test_set_is_played_once_per_group_at_its_own_temperature():
    service = FakeService(always(GOOD))
    evaluator = RLTestSetEvaluator(Batches(guesses(batches=2)), max_tokens=3, temperature=0.25)

    metrics = await evaluator(sampler(service))

    assert metrics["test/env/all/reward/total"] == 1.0
    assert metrics["test/env/all/total_episodes"] == 8
    params = [call.arguments["sampling_params"] for call in service.called("sample")]
    assert {(one.max_tokens, one.temperature) for one in params} == {(3, 0.25)}


async def test_a_failed_rollout_ends_an_evaluation_unless_its_strategy_says_otherwise():
    batches = Batches([[GuessGroup(0), GuessGroup(1, raises=RuntimeError("crashed"))]])
    strategy = MinViableGroup(max_retries=0)

    with pytest.raises(RuntimeError, match="crashed"):
        await RLTestSetEvaluator(batches, 3)(sampler(FakeService(always(GOOD))))
    tolerant = RLTestSetEvaluator(batches, 3, strategy=strategy)
    metrics = await tolerant(sampler(FakeService(always(GOOD))))

    assert metrics["test/env/all/total_episodes"] == 2


async def test_an_evaluator_that_returns_nothing_is_named():
    class Forgetful(SamplingClientEvaluator):
        async def __call__(self, sampling_client: Any) -> Any:
            return None

    with pytest.raises(EvalError, match="Forgetful"):
        await run_evaluations(distinctly_named([Forgetful()]), None, None)


class Named(SamplingClientEvaluator):
    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, sampling_client: Any) -> dict[str, float]:
        return {f"{self.name}/value": 1.0, "shared": 2.0}


async def test_a_name_that_is_taken_gets_the_next_number_that_is_free():
    names = ["a", "a_2", "a", "a"]

    evaluations = distinctly_named([Named(name) for name in names])
    found = merged_metrics(await run_evaluations(evaluations, None, None))

    assert [evaluation.name for evaluation in evaluations] == ["a", "a_2", "a_3", "a_4"]
    assert {"a/value", "a_2/value", "a_3/value", "a_4/value"} <= set(found)


async def test_a_key_that_two_evaluators_give_is_kept_twice():
    evaluations = distinctly_named([Named("a"), Named("b")])

    found = merged_metrics(await run_evaluations(evaluations, None, None))

    assert {"shared", "b/shared"} <= set(found)


async def test_episodes_of_a_test_set_are_written_beside_those_of_training(tmp_path: Path):
    data = Data(batches=guesses(batches=1), test=[[GuessGroup(7)]])
    service = FakeService(alternating())

    await main(
        config(
            tmp_path, service, [], dataset_builder=data, eval_every=1, num_groups_to_log=1,
            rollout_json_export=True,
        )
    )  # fmt: skip

    first, final = (tmp_path / f"iteration_{step:06d}" for step in (0, 1))
    assert {path.name for path in first.iterdir()} == {
        "train_rollout_summaries.jsonl", "train_logtree.json", "train.html",
        "eval_test_rollout_summaries.jsonl", "eval_test_logtree.json", "eval_test.html",
    }  # fmt: skip
    assert {path.name for path in final.iterdir()} == {
        "eval_test_rollout_summaries.jsonl", "eval_test_logtree.json", "eval_test.html",
    }  # fmt: skip
    assert len((first / "train_rollout_summaries.jsonl").read_text().splitlines()) == 4
