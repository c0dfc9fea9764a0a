"""A reward that raises, hangs or is no number: what is stated happens, and to its own group alone.

Each case is run by `run_grpo` and by the recipes' own loop. There are two prompts; "good?" is answered
"yes" and "no", and so is "bad?", whose "yes" cannot be scored.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.recipe.fake_service import FakeService
from tests.recipe.rl import players
from tests.rl_core.world import (
    MODEL,
    TOKENIZER,
    Repeats,
    Sayings,
    SaysYes,
    advantages,
    config,
    rows,
    saying,
    summaries,
)

from mint import ModelInput
from mint.recipe.rl.diagnosis import examine_run
from mint.recipe.rl.train import main
from mint.rl_core import Reward, RLAdapter, run_grpo, train_config

PROMPTS = ["good?", "bad?"]
Run = Callable[..., FakeService]


def by_run_grpo(adapter: RLAdapter, folder: Path) -> FakeService:
    fake = saying(Sayings({"good": ["yes", "no"], "bad": ["yes", "no"]}))
    run_grpo(adapter, config(folder, batch=2), prompts=PROMPTS, service_client=fake)
    return fake


def by_recipe(adapter: RLAdapter, folder: Path, **fields: Any) -> FakeService:
    fake = saying(Sayings({"good": ["yes", "no"], "bad": ["yes", "no"]}))
    players.run(
        main(
            train_config(
                adapter, PROMPTS, model_name=MODEL, learning_rate=1e-4, max_tokens=8, batch_size=2,
                group_size=2, seed=None, log_path=str(folder), service_client=fake, **fields,
            )
        )
    )  # fmt: skip
    return fake


both = pytest.mark.parametrize("run", [by_run_grpo, by_recipe])


def is_bad(prompt: ModelInput, response: ModelInput) -> bool:
    asked, said = (TOKENIZER.decode(one.to_ints()) for one in (prompt, response))
    return "bad?" in asked and said.startswith("yes")


class Raises(SaysYes):
    error_score = -1.0

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        if is_bad(prompt, response):
            raise OSError("the judge is gone")
        return super().__call__(prompt, response)


class GivesNan(Raises):
    def __call__(self, prompt: ModelInput, response: ModelInput) -> Any:
        return (
            float("nan") if is_bad(prompt, response) else SaysYes.__call__(self, prompt, response)
        )


class MakesNan(Raises):
    def __call__(self, prompt: ModelInput, response: ModelInput) -> Any:
        score = float("nan") if is_bad(prompt, response) else 1.0
        return Reward(score) if score != 1.0 else SaysYes.__call__(self, prompt, response)


class Hangs(SaysYes):
    timeout_s = 0.2
    timeout_score = -1.0
    never = threading.Event()

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        if is_bad(prompt, response):
            self.never.wait(20)
        return super().__call__(prompt, response)


class HangsInACoroutine(RLAdapter):
    timeout_s = 0.2
    timeout_score = -1.0

    async def acall(self, prompt: ModelInput, response: ModelInput) -> float:
        if is_bad(prompt, response):
            await asyncio.Event().wait()
        return float(TOKENIZER.decode(response.to_ints()).startswith("yes"))


@both
@pytest.mark.parametrize("kind", [Raises, GivesNan, MakesNan])
def test_with_an_error_score_a_failure_is_worth_that_and_is_counted(
    kind: type[RLAdapter], run: Run, tmp_path: Path
):
    fake = run(kind(), tmp_path)

    assert sorted(advantages(fake)[0]) == [-0.5, -0.5, 0.5, 0.5]  # yes - no, and -1 - 0
    [row] = rows(tmp_path)
    assert (row["env/all/adapter_error"], row["env/all/adapter_timeout"]) == (0.25, 0.0)
    assert row["health/episodes_adapter_error"] == 0.25
    bad = [one for one in summaries(tmp_path) if one["total_reward"] == -1.0]
    assert [one["steps"][0]["logs"]["error"][:7] for one in bad] in (["OSError"], ["ValueEr"])
    [finding] = examine_run(tmp_path).findings()
    assert finding.startswith("1 of 4 episodes could not be scored and got error_score")


@both
@pytest.mark.parametrize("kind", [Hangs, HangsInACoroutine])
def test_a_hang_is_cut_at_its_limit_and_is_counted(kind: type[RLAdapter], run: Run, tmp_path: Path):
    try:
        fake = run(kind(), tmp_path)
    finally:
        Hangs.never.set()
        Hangs.never = threading.Event()

    assert sorted(advantages(fake)[0]) == [-0.5, -0.5, 0.5, 0.5]
    [row] = rows(tmp_path)
    assert (row["env/all/adapter_error"], row["env/all/adapter_timeout"]) == (0.0, 0.25)
    [finding] = examine_run(tmp_path).findings()
    assert finding.startswith("1 of 4 episodes were not scored in time and got timeout_score")


class RaisesAsItself(Raises):
    error_score = None


class NanAsItself(GivesNan):
    error_score = None


@both
@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [(RaisesAsItself, OSError, "the judge is gone"), (NanAsItself, ValueError, "is not finite")],
)
def test_without_an_error_score_the_first_failure_ends_the_run_as_itself(
    kind: type[RLAdapter], error: type[Exception], says: str, run: Run, tmp_path: Path
):
    with pytest.raises(error, match=says) as raised:
        run(kind(), tmp_path)

    [note] = raised.value.__notes__
    assert kind.__name__ in note
    assert "on the response: yes" in note
    assert not (tmp_path / "metrics.jsonl").is_file()


def test_a_tolerant_run_leaves_the_failed_group_out_and_trains_the_other(tmp_path: Path):
    fake = by_recipe(RaisesAsItself(), tmp_path, rollout_error_tolerance=True)

    assert advantages(fake) == [[0.5, -0.5]]
    [row] = rows(tmp_path)
    assert (row["batch/groups_failed"], row["batch/groups_kept"]) == (1, 1)
    assert row["rollout_errors/OSError"] == 1
    assert "1 group failed" in " ".join(examine_run(tmp_path).findings())


class Judge(Repeats):
    """Fails on one of its samples."""

    words = ("good", "bad")
    error_score = -1.0

    def compute_reward(self, response: str, sample: str) -> Any:
        if sample == "bad" and response.startswith("yes"):
            raise OSError("the judge is gone")
        return float(response.startswith("yes"))


def test_adapters_of_samples_have_the_same_policy(tmp_path: Path):
    fake = saying(Sayings({"good": ["yes", "no"], "bad": ["yes", "no"]}))

    run_grpo(Judge(), config(tmp_path, batch=2), service_client=fake)

    assert sorted(advantages(fake)[0]) == [-0.5, -0.5, 0.5, 0.5]
    [row] = rows(tmp_path)
    assert row["env/all/adapter_error"] == 0.25


class NothingWorks(SaysYes):
    error_score = 0.0

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        raise OSError("the judge is gone")


def test_when_nothing_can_be_scored_the_step_says_why_it_taught_nothing(
    tmp_path: Path, capsys: Any
):
    fake = by_run_grpo(NothingWorks(), tmp_path)

    assert not fake.called("forward_backward")
    told = capsys.readouterr().err
    assert "Could not learn: no answer could be scored (4 of 4)" in told
