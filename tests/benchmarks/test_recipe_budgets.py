"""The workloads are what the benchmark says they are."""

import pytest
from benchmarks.recipe_budgets import Prompts, conversation, in_chunks, long_episode

from mint.recipe.rl.data_processing import trajectory_to_data


class Letters:
    """One token a letter."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


@pytest.mark.parametrize("extends", [True, False])
def test_a_long_episode_is_one_datum_of_all_its_tokens(extends):
    episode = long_episode(extends, turns=5, tokens=100)

    [datum] = trajectory_to_data(episode, 1.0)

    assert [len(turn.ac.tokens) for turn in episode.transitions] == [10] * 5
    assert datum.model_input.length == 99
    assert sum(datum.loss_fn_inputs["mask"].tolist()) == 50


def test_prompts_in_chunks_are_the_same_prompts_and_share_their_chunks():
    joined = long_episode(extends=True, turns=3, tokens=60)

    bridged = in_chunks(joined)

    prompts = [turn.ob for turn in bridged.transitions]
    assert [p.to_ints() for p in prompts] == [turn.ob.to_ints() for turn in joined.transitions]
    assert [len(p.chunks) for p in prompts] == [1, 3, 5]
    assert prompts[2].chunks[0] is prompts[0].chunks[0]


def test_a_conversation_has_about_as_many_tokens_as_asked():
    first, second = conversation(Letters(), 100)

    assert len(first["content"]) + len(second["content"]) == 88  # and a dozen of markup


def test_prompts_have_the_sizes_of_the_step():
    batches = Prompts(groups=3, members=2, length=7, batches=2)

    assert len(batches) == 2
    assert [(len(b.rewards), b.prompt.length) for b in batches.get_batch(1)] == [(2, 7)] * 3  # type: ignore[attr-defined]
