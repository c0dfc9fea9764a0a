"""The five cautions of docs/en/rewards.md, each answered by something that runs: size, sparse rewards,
code that a model wrote, slowness, chance."""

import asyncio
import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.rl_core.world import (
    TOKENIZER,
    Repeats,
    Sayings,
    advantages,
    config,
    rows,
    saying,
    service,
)

from mint import ModelInput
from mint.recipe import grading
from mint.recipe.rl.diagnosis import examine_run
from mint.recipe.sandbox import FunctionCase, Isolation, Limits, Sandbox, grade_function
from mint.recipe.sandbox.isolation import WeakIsolationWarning
from mint.rl_core import Reward, RLAdapter, run_grpo

PROMPTS, GROUP = [f"question {n}" for n in range(8)], 6


# ------------------------------------------------------------------- 1. size


class Unbounded(RLAdapter):
    """A ratio, as people write it, that comes to infinity where the divisor does not exist."""

    error_score = -1.0

    def __call__(self, prompt: ModelInput, response: ModelInput) -> Any:
        return {"yes": 1.0, "no": 0.0, "what": math.inf}[self.response_text(response)]


def test_a_score_without_bound_never_becomes_an_advantage(tmp_path: Path):
    fake = service("yes", "no", "what")

    run_grpo(Unbounded(), config(tmp_path, group=3), prompts=PROMPTS[:1], service_client=fake)

    [batch] = advantages(fake)
    assert sorted(batch) == [-1.0, 0.0, 1.0]  # rewards -1 (refused), 0 and 1 less their mean
    assert rows(tmp_path)[-1]["env/all/adapter_error"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("text", ["8", "It is 8.", "eight", "", "9" * 5000, "8 " * 5000])
def test_a_weighted_grade_stays_between_its_bounds_whatever_is_said(text: str):
    parts = {
        "right": grading.number_matches(text, 8),
        "alike": grading.token_f1(text, "it is 8"),
        "long": grading.length_penalty(len(text), free=8, full=64),
    }

    graded = grading.weighted_sum(parts, {"right": 0.7, "alike": 0.3, "long": 0.1})

    assert -0.1 <= Reward(*graded).score <= 1.0


# ----------------------------------------------------------- 2. sparse rewards


class AllOrNothing(Repeats):
    """What is 5 + 7? Nobody in the little world knows."""

    words = ("5 + 7",)

    def compute_reward(self, response: str, sample: str) -> Any:
        return grading.number_matches(response, 12)


class Partial(AllOrNothing):
    def compute_reward(self, response: str, sample: str) -> Any:
        found = grading.extract_number(response)
        near = 0.0 if found is None else max(0.0, 1 - abs(float(found) - 12) / 20)
        return Reward(*grading.weighted_sum({"near": near}, {"near": 0.3}))


def test_all_or_nothing_teaches_nothing_while_all_are_wrong_and_the_doctor_says_so(tmp_path: Path):
    fake = service("7", "30")

    run_grpo(AllOrNothing(), config(tmp_path), service_client=fake)

    assert advantages(fake) == []
    assert any(
        "give easier problems, a finer reward" in one for one in examine_run(tmp_path).findings()
    )


def test_partial_credit_finds_something_to_teach_in_the_same_answers(tmp_path: Path):
    fake = service("7", "30")

    run_grpo(Partial(), config(tmp_path), service_client=fake)

    [[nearer, farther]] = advantages(fake)
    assert nearer > 0 > farther
    assert rows(tmp_path)[-1]["env/all/near"] == pytest.approx((0.75 + 0.1) / 2)


# ------------------------------------------------- 3. code that a model wrote


class Squares(RLAdapter):
    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox

    async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
        source, cases = self.response_text(response), [FunctionCase([3], 9), FunctionCase([-4], 16)]
        grade = await grade_function(
            self.sandbox, source, "square", cases, limits=Limits(wall_s=20.0)
        )
        return Reward(grade.share, {"outcome": grade.cases[0].outcome})


HONEST = "def square(x):\n    return x * x\n"
HOSTILE = """
import os
try:
    open({victim!r}, "w").write("mine")
except OSError:
    pass
print("PASSED")
print({{"passed": 2}}, flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """The best that there is on this machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakIsolationWarning)
        sandbox = Sandbox()
    with sandbox:
        yield sandbox


def test_code_that_claims_success_scores_nothing_and_reaches_nothing(
    sandbox: Sandbox, tmp_path: Path
):
    victim = tmp_path / "victim"
    victim.write_text("ours")
    fake = service(HONEST, HOSTILE.format(victim=str(victim)))

    run_grpo(Squares(sandbox), config(tmp_path / "run"), prompts=PROMPTS[:1], service_client=fake)

    assert advantages(fake) == [[0.5, -0.5]]
    if Isolation.WRITING in sandbox.isolates:
        assert victim.read_text() == "ours"


# ------------------------------------------------------------------ 4. slowness


class Together(RLAdapter):
    """Answers once all rewards of the step have been asked for: one after the other it never does."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.all_are_here = threading.Barrier(count, timeout=60)

    def __call__(self, prompt: ModelInput, response: ModelInput) -> float:
        self.all_are_here.wait()
        return float(self.response_text(response) == "yes")


class TogetherAwaited(RLAdapter):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.missing = count
        self.all_are_here = asyncio.Event()

    async def acall(self, prompt: ModelInput, response: ModelInput) -> float:
        self.missing -= 1
        if self.missing == 0:
            self.all_are_here.set()
        await asyncio.wait_for(self.all_are_here.wait(), 60)
        return float(self.response_text(response) == "yes")


@pytest.mark.parametrize("kind", [Together, TogetherAwaited])
def test_all_48_rewards_of_a_step_wait_at_once(kind: Any, tmp_path: Path):
    fake = service("yes", "no")

    run_grpo(
        kind(len(PROMPTS) * GROUP), config(tmp_path, batch=8, group=GROUP), prompts=PROMPTS,
        service_client=fake,
    )  # fmt: skip

    [batch] = advantages(fake)
    assert len(batch) == 48


class Hangs(RLAdapter):
    """One question's answers are never judged."""

    timeout_s = 1.5

    def __call__(self, prompt: ModelInput, response: ModelInput) -> float:
        if "question 3" in TOKENIZER.decode(prompt.to_ints()):
            threading.Event().wait(60)
        return float(self.response_text(response) == "yes")


def test_a_reward_that_hangs_is_cut_and_other_questions_are_trained_as_ever(tmp_path: Path):
    fake = service("yes", "no")

    run_grpo(Hangs(), config(tmp_path, batch=8, group=GROUP), prompts=PROMPTS, service_client=fake)

    [batch] = advantages(fake)
    assert len(batch) == 42  # the group that was cut has equal rewards, and nothing to teach
    assert rows(tmp_path)[-1]["env/all/adapter_timeout"] == 6 / 48
    assert any("6 of 48" in line for line in examine_run(tmp_path).findings())


# -------------------------------------------------------------------- 5. chance


class Drawn(RLAdapter):
    """Its reward is a random number; remembers what it drew for each answer, in order."""

    def __init__(self, seed: int, order: Sequence[int]) -> None:
        super().__init__(seed=seed)
        self.places = iter(order)
        self.turns = [asyncio.Event() for _ in range(len(order) + 1)]
        self.turns[0].set()
        self.drawn: dict[str, float] = {}

    async def acall(self, prompt: ModelInput, response: ModelInput) -> float:
        place = next(self.places)
        await self.turns[place].wait()
        draw = self.rng(prompt, response).random()
        self.drawn[self.response_text(response)] = draw
        self.turns[place + 1].set()
        return draw


def test_two_runs_with_one_seed_draw_the_same_in_whatever_order(tmp_path: Path):
    first, second = Drawn(7, [0, 1, 2, 3]), Drawn(7, [3, 2, 1, 0])

    for number, adapter in enumerate((first, second)):
        run_grpo(
            adapter,
            config(tmp_path / str(number), group=4),
            prompts=PROMPTS[:1],
            service_client=saying(Sayings({"": ["one", "two", "three", "four"]})),
        )

    assert list(first.drawn) == list(reversed(second.drawn))
    assert first.drawn == second.drawn
    assert len(set(first.drawn.values())) == 4
    assert rows(tmp_path / "0")[-1]["env/all/seed"] == 7
