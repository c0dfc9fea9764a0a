"""Renderers run in worker threads, on a tokenizer that the user's own code uses meanwhile."""

import asyncio
from itertools import chain

import pytest
from tests.recipe.renderers.conversations import NAMED
from tests.recipe.renderers.qwen import tokenizer

from mint.recipe.renderers.qwen3 import Qwen3Renderer


@pytest.fixture(scope="module")
def fast():
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer().backend_tokenizer, eos_token="<|im_end|>"
    )


def test_64_groups_render_in_threads_while_the_user_encodes(fast):
    """Upstream's renderers switch the tokenizer's special tokens on and off in every call, and die
    with "Already borrowed"."""
    conversation = NAMED["tools in history"]
    expected = Qwen3Renderer(tokenizer()).build_generation_prompt(conversation).to_ints()
    asked = fast("a few words of the user's", truncation=True, max_length=3)["input_ids"]

    def render() -> list[int]:
        return Qwen3Renderer(fast).build_generation_prompt(conversation).to_ints()

    def encode(n: int) -> list[int]:  # truncation is a setting of the shared object
        return fast("a few words of the user's", truncation=True, max_length=n)["input_ids"]

    async def group(i: int) -> tuple[list[int], list[int]]:
        return await asyncio.gather(asyncio.to_thread(render), asyncio.to_thread(encode, 3))

    async def run() -> list[tuple[list[int], list[int]]]:
        return await asyncio.gather(*map(group, range(64)))

    rendered, encoded = zip(*asyncio.run(run()), strict=True)
    assert list(rendered) == [expected] * 64
    assert set(chain.from_iterable(encoded)) <= set(asked)
