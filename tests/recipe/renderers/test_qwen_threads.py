"""Renderers run in worker threads, on a tokenizer that the user's own code uses meanwhile."""

import asyncio

from tests.recipe.renderers.conversations import NAMED
from tests.recipe.renderers.fast import Fast
from tests.recipe.tokens import ByteTokenizer

from mint.recipe.renderers.qwen3 import Qwen3Renderer
from mint.torch_engine.models.tokenizer_files import bytes_only


class Shared(Fast):
    """As a user has it; a byte is a token."""

    def __init__(self) -> None:
        marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        super().__init__(bytes_only(marks), eos_token="<|im_end|>")


def test_64_groups_render_in_threads_while_the_user_s_code_changes_the_tokenizer():
    """One object whose settings are switched in one thread while another encodes fails with
    "Already borrowed", or encodes with the other's settings."""
    conversation = NAMED["tools in history"]
    expected = Qwen3Renderer(Shared()).build_generation_prompt(conversation).to_ints()
    shared = Shared()

    def render() -> list[int]:
        return Qwen3Renderer(shared).build_generation_prompt(conversation).to_ints()

    def switch() -> None:
        shared.backend_tokenizer.enable_truncation(max_length=3)
        shared.backend_tokenizer.encode_special_tokens = False

    async def group() -> list[int]:
        rendered, _ = await asyncio.gather(asyncio.to_thread(render), asyncio.to_thread(switch))
        return rendered

    async def run() -> list[list[int]]:
        shared_first = await asyncio.to_thread(render)  # our copy is made before it is changed
        return [shared_first, *await asyncio.gather(*(group() for _ in range(64)))]

    assert asyncio.run(run()) == [expected] * 65


def test_a_fast_tokenizer_and_a_plain_one_read_a_conversation_alike():
    for conversation in NAMED.values():
        fast = Qwen3Renderer(Shared()).build_generation_prompt(conversation)
        plain = Qwen3Renderer(ByteTokenizer()).build_generation_prompt(conversation)
        assert Shared().decode(fast.to_ints()) == ByteTokenizer().decode(plain.to_ints())
