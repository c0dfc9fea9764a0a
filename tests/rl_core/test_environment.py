"""An adapter as an environment: one prompt, one response, scored with its group."""

import asyncio
import logging
import pickle
from typing import Any

import pytest
from tests.recipe.fake_service import FakeService
from tests.recipe.rl.players import run
from tests.rl_core.world import END, TOKENIZER, Sayings, SaysYes, saying, service

from mint import ModelInput
from mint.recipe.completers import TinkerTokenCompleter
from mint.recipe.rl.rollouts import do_group_rollout
from mint.recipe.rl.types import TrajectoryGroup
from mint.rl_core import AdapterEnv, AdapterGroupBuilder, Reward, RLAdapter, environment

PROMPT = ModelInput.from_ints(TOKENIZER.encode("well?"))


def played(adapter: RLAdapter, fake: FakeService | None = None, size: int = 2) -> TrajectoryGroup:
    """One group, rolled out and scored."""
    policy = TinkerTokenCompleter((fake or service()).create_sampling_client().result(), 8)
    return run(do_group_rollout(AdapterGroupBuilder(adapter, PROMPT, [END], size), policy))


def test_an_episode_is_the_prompt_and_what_was_sampled_and_is_done():
    env = AdapterEnv(SaysYes(), PROMPT, [END])

    first = asyncio.run(env.initial_observation())
    result = asyncio.run(env.step([1, 2], extra={"stop_reason": "stop"}))

    assert first == (PROMPT, [END])
    assert (result.reward, result.episode_done, result.metrics) == (0.0, True, {})
    assert result.next_observation.length == 0
    assert env.response is not None
    assert env.response.to_ints() == [1, 2]


def test_a_group_is_scored_in_its_order_and_numbers_are_metrics_and_texts_logs():
    group = played(SaysYes())

    assert group.get_total_rewards() == [1.0, 0.0]
    fine = {"adapter_timeout": 0.0, "adapter_error": 0.0}
    assert group.metrics_G == [{"length": 16, **fine}, {"length": 15, **fine}]
    logs = [episode.transitions[-1].logs for episode in group.trajectories_G]
    assert logs == [{"said": "yes<|endoftext|>"}, {"said": "no<|endoftext|>"}]


class Told(RLAdapter):
    """Remembers all that it is given."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def score_batch(self, pairs: Any, contexts: Any = None) -> list[Reward]:
        self.calls.append((pairs, contexts))
        return [Reward(float(place)) for place in range(len(pairs))]


def test_a_whole_group_is_scored_by_one_call_of_score_batch():
    adapter = Told()

    group = played(adapter, saying(Sayings({"": ["a", "b", "c"]}, cut=["b"])), size=3)

    [(pairs, contexts)] = adapter.calls
    assert [prompt for prompt, _ in pairs] == [PROMPT] * 3
    said = [response.to_ints() for _, response in pairs]
    assert said == [[97, END], [98], [99, END]]
    assert [context.stop_reason for context in contexts] == ["stop", "length", "stop"]
    assert group.get_total_rewards() == [0.0, 1.0, 2.0]


def test_a_response_that_was_cut_is_scored_and_says_so():
    group = played(SaysYes(), saying(Sayings({"": ["yes, and"]}, cut=["yes, and"])), size=1)

    assert group.get_total_rewards() == [1.0]
    [episode] = group.trajectories_G
    assert episode.transitions[0].metrics == {"stop/max_tokens": 1.0}
    assert episode.stop_reason == "max_tokens"


class Loud(RLAdapter):
    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        return Reward(0.5, {"reward": 3, "score": 4, "step": "five", "adapter_error": 1})


def test_names_that_a_row_has_already_are_set_apart_and_ours_are_ours():
    [metrics] = played(Loud(), size=1).metrics_G

    assert metrics == {"meta_reward": 3, "meta_score": 4, "adapter_timeout": 0, "adapter_error": 0}


class Mixed(RLAdapter):
    """Right, late and broken, by the first letter."""

    timeout_s = 0.05
    timeout_score = -0.5
    error_score = -1.0

    async def acall(self, prompt: ModelInput, response: ModelInput) -> Reward:
        match TOKENIZER.decode(response.to_ints())[0]:
            case "l":
                await asyncio.sleep(60)
            case "b":
                raise KeyError("no such answer")
        return Reward(1.0, {"right": True})


def test_what_was_late_or_failed_is_counted_by_its_kind_and_the_others_keep_theirs():
    group = played(Mixed(), service("late", "right", "broken"), size=3)

    assert group.get_total_rewards() == [-0.5, 1.0, -1.0]
    kinds = [(one["adapter_timeout"], one["adapter_error"]) for one in group.metrics_G]
    assert kinds == [(1, 0), (0, 0), (0, 1)]
    assert [one.get("right") for one in group.metrics_G] == [None, 1, None]
    logs = [episode.transitions[-1].logs for episode in group.trajectories_G]
    assert logs == [{"error": "timeout", "timeout_s": 0.05}, {},
                    {"error": "KeyError: 'no such answer'"}]  # fmt: skip


class ErrorInItsOwnWords(RLAdapter):
    def __call__(self, prompt: ModelInput, response: ModelInput) -> Reward:
        return Reward(0.0, {"error": "No number found"})


def test_an_error_in_a_rewards_own_words_is_no_failure():
    [metrics] = played(ErrorInItsOwnWords(), size=1).metrics_G

    assert (metrics["adapter_timeout"], metrics["adapter_error"]) == (0, 0)


def test_an_episode_that_was_ended_before_its_response_gets_nothing_and_is_not_scored():
    adapter = Told()
    builder = AdapterGroupBuilder(adapter, PROMPT, [END], 2)

    async def scored() -> Any:
        answered, ended = await builder.make_envs()
        await answered.step([1])
        trajectories = [_episode(), _episode()]
        return await builder.compute_group_rewards(trajectories, [answered, ended])

    (first, _), second = run(scored())

    assert len(adapter.calls[0][0]) == 1
    assert first == 0.0
    assert second == (0.0, {})


def _episode() -> Any:
    from tests.recipe.rl.episodes import episode, turn

    return episode(turn([1], [2]))


def test_a_group_travels_to_another_process_with_its_adapter():
    builder = AdapterGroupBuilder(SaysYes(), PROMPT, [END], 2, tags=("yes",))

    copy = pickle.loads(pickle.dumps(builder))

    assert isinstance(copy.adapter, SaysYes)
    assert (copy.prompt, copy.stop, copy.group_size) == (PROMPT, [END], 2)
    assert copy.logging_tags() == ["yes"]


class Slow(RLAdapter):
    async def acall(self, prompt: ModelInput, response: ModelInput) -> float:
        await asyncio.sleep(0.2)
        return 0.0


class SlowWithALimit(Slow):
    timeout_s = 30.0


def test_who_waits_long_for_an_adapter_without_a_limit_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(environment, "LONG_S", 0.01)

    with caplog.at_level(logging.WARNING, "mint.rl_core"):
        played(SlowWithALimit())
        assert caplog.messages == []
        played(Slow())
        played(Slow())

    assert [
        one for one in caplog.messages if "a group waits for Slow.acall" in one
    ] == caplog.messages
    assert len(caplog.messages) == 1
    assert "Set timeout_s" in caplog.messages[0]
