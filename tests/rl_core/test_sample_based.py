"""Adapters of samples go the way of all others."""

import asyncio
import threading
from typing import Any

import pytest
from tests.rl_core.world import TOKENIZER, Repeats

from mint import ModelInput
from mint.recipe.exceptions import DataFormatError
from mint.rl_core import FailedReward, Reward, RLAdapter
from mint.rl_core.sample_based import SampleScorer, is_sample_based, prompt_of

PROMPT = ModelInput.from_ints([1])


def scored(adapter: RLAdapter, text: str, sample: Any = "x") -> Reward:
    adapter.tokenizer = TOKENIZER
    response = ModelInput.from_ints(TOKENIZER.encode(text))
    return asyncio.run(SampleScorer(adapter, sample).score(PROMPT, response))


def test_the_text_has_its_special_tokens():
    assert scored(Repeats(), "x<|endoftext|>") == Reward(1.0)
    assert scored(Repeats(), "x") == Reward(0.0)


class Asynchronous(Repeats):
    async def compute_reward(self, response: str, sample: str) -> Any:
        await asyncio.sleep(0)
        return Reward(0.25, {"said": response})


def test_a_reward_may_be_promised_and_may_have_metadata():
    assert scored(Asynchronous(), "x") == Reward(0.25, {"said": "x"})


class Hanging(Repeats):
    timeout_s = 0.05
    timeout_score = -0.25
    max_concurrency = 2
    hung = threading.Event()

    def compute_reward(self, response: str, sample: str) -> Any:
        self.hung.wait(20)
        return 1.0


def test_limits_are_the_adapters_own_and_hold_over_all_its_samples():
    adapter = Hanging()
    try:
        late = [scored(adapter, "x", sample) for sample in ("a", "b")]

        assert (
            late
            == [FailedReward(-0.25, {"error": "timeout", "timeout_s": 0.05}, kind="timeout")] * 2
        )
        with pytest.raises(
            RuntimeError, match=r"2 calls of Hanging\.compute_reward had their time"
        ):
            scored(adapter, "x", "c")
    finally:
        Hanging.hung.set()


class Failing(Repeats):
    def compute_reward(self, response: str, sample: str) -> Any:
        return [float("nan"), None, "0.5"][int(sample)]


@pytest.mark.parametrize(
    ("sample", "error", "says"),
    [
        ("0", ValueError, "is not finite"),
        ("1", TypeError, r"Failing\.compute_reward returned nothing"),
        ("2", TypeError, r"Failing\.compute_reward returned str '0.5'"),
    ],
)
def test_what_is_no_reward_is_refused_in_the_name_of_the_users_method(
    sample: str, error: type[Exception], says: str
):
    with pytest.raises(error, match=says) as found:
        scored(Failing(), "x", sample)

    assert any("Failing.compute_reward" in note for note in found.value.__notes__)


class Prompting(Repeats):
    def make_prompt(self, sample: Any, tokenizer: Any) -> Any:
        return sample


@pytest.mark.parametrize("tokens", [[1, 2], ModelInput.from_ints([1, 2]), {"input_ids": [1, 2]}])
def test_a_prompt_may_have_any_form_of_tokens(tokens: Any):
    assert prompt_of(Prompting(), tokens, TOKENIZER).to_ints() == [1, 2]


def test_a_prompt_of_text_is_refused_with_the_ways_to_encode_it():
    with pytest.raises(DataFormatError, match=r"Prompting\.make_prompt gave the text 'hi'.*encode"):
        prompt_of(Prompting(), "hi", TOKENIZER)


def test_which_adapters_score_samples_is_told_by_their_class():
    class Tokens(RLAdapter):
        def __call__(self, prompt: Any, response: Any) -> float:
            return 0.0

    assert [is_sample_based(one) for one in (Repeats, Repeats(), Tokens, Tokens(), dict, print)] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
