"""A slow reward holds up nobody else. Shown by what has happened, not by how long it took.

Waiting below is for something to happen elsewhere, and ends in seconds if it never does; the test then
fails.
"""

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.recipe.fake_service import FakeService
from tests.rl_core.world import TOKENIZER, Sayings, advantages, config, service

from mint import ModelInput
from mint.rl_core import RLAdapter, run_grpo

PATIENCE_S = 20.0


class Held(FakeService):
    """Answers every prompt at once, but for one, which has to be let go."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.gate = threading.Event()
        self.was_let_go = False

    def sampled(self, promised: Future[Any]) -> Any:
        if "held" not in TOKENIZER.decode(self.calls[-1].arguments["prompt"].to_ints()):
            return super().sampled(promised)
        answer: Future[Any] = Future()

        def wait() -> None:
            self.was_let_go = self.gate.wait(PATIENCE_S)
            answer.set_result(promised.result())

        threading.Thread(target=wait, daemon=True).start()
        return super().sampled(answer)


class LetsGo(RLAdapter):
    """Scoring the free prompt lets the held one be sampled, and ends after that one was scored."""

    def __init__(self, fake: Held) -> None:
        self.fake = fake
        self.held_is_scored = threading.Event()
        self.saw_it = False

    def __call__(self, prompt: ModelInput, response: ModelInput) -> float:
        said = float(TOKENIZER.decode(response.to_ints()).startswith("yes"))
        if "held" in TOKENIZER.decode(prompt.to_ints()):
            self.held_is_scored.set()
        else:
            self.fake.gate.set()
            self.saw_it = self.held_is_scored.wait(PATIENCE_S)
        return said


def test_a_group_is_scored_while_another_is_still_being_sampled_and_the_other_way_round(
    tmp_path: Path,
):
    fake = Held(Sayings({"": ["yes", "no"]}), tokenizer=TOKENIZER, base_model="test/rl-core")
    adapter = LetsGo(fake)

    run_grpo(adapter, config(tmp_path, batch=2), prompts=["held", "free"], service_client=fake)

    assert fake.was_let_go, "the free group was not scored before the held one had been sampled"
    assert adapter.saw_it, "the held group was not sampled and scored while the free one was scored"
    assert advantages(fake) == [[0.5, -0.5, 0.5, -0.5]]


class Bounded(RLAdapter):
    max_concurrency = 3

    def __init__(self) -> None:
        self.running = self.most = 0

    async def acall(self, prompt: ModelInput, response: ModelInput) -> float:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.002)
        self.running -= 1
        return float(TOKENIZER.decode(response.to_ints()).startswith("yes"))


def test_the_bound_on_scorings_holds_over_all_groups_of_a_step(tmp_path: Path):
    adapter = Bounded()

    run_grpo(
        adapter, config(tmp_path, batch=4, group=4), prompts=list("abcd"), service_client=service()
    )

    assert adapter.most == 3
