"""What the loop's share of a step is counted from."""

import asyncio
from types import SimpleNamespace
from typing import Any

from benchmarks.recipe_step import LOOP, SCRIPT, SHAPE, Turns, figures_of


class Letters:
    """One token a letter."""

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=[ord(letter) for letter in text])


def test_a_batch_is_the_scripts_prompts_and_comes_after_its_turn():
    turns: list[int] = []
    tokenizer: Any = Letters()
    data = Turns(tokenizer=tokenizer, steps=2, take_turn=turns.append)

    builders: Any = data.get_batch(1)

    assert turns == [1]
    assert [builder.prompt.length for builder in builders] == SHAPE.prompt_lengths()
    envs = asyncio.run(builders[0].make_envs())
    assert len(envs) == SHAPE.group
    assert len({env.reward for env in envs}) == 2  # so that there is something to train


def test_shares_are_of_the_loops_step_and_the_scripts_turn_is_not_in_them():
    seconds = {
        LOOP: [{"wall": 10.0, "cpu": 8.0, "client": 0.5}],
        SCRIPT: [{"wall": 9.0, "cpu": 7.6, "client": 0.3}],
    }
    row = {"time/total": 18.9, "time/policy_sample:max": 4.0, "time/train": 5.0}

    told = figures_of(seconds, [row])

    assert told["share_cpu"] == 0.05
    assert told["share_wall"] == 0.1
    assert told["client_share"] == 0.025
    assert told["outside_s"] == 0.9
    assert told["outside_share"] == 0.09
