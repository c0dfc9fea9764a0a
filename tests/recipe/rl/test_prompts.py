"""Prompts: shared by a group's members, extended rather than rendered again."""

import asyncio
from typing import Any

import pytest
from tests.recipe.rl.players import TOKENIZER, run

from mint import ModelInput
from mint.recipe.messages import Message
from mint.recipe.renderers.qwen3 import Qwen3InstructRenderer
from mint.recipe.rl.prompts import first_prompt, new_since, sharing_prompts, snapshot


class Counts(Qwen3InstructRenderer):
    def __init__(self) -> None:
        super().__init__(TOKENIZER)
        self.renderings = 0

    def build_generation_prompt(self, messages: Any, *rest: Any, **named: Any) -> ModelInput:
        self.renderings += 1
        return super().build_generation_prompt(messages, *rest, **named)


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def rendered_together(renderer: Any, *conversations: list[Message]) -> list[ModelInput]:
    async def together() -> list[ModelInput]:
        with sharing_prompts():
            return await asyncio.gather(*(first_prompt(renderer, one) for one in conversations))

    return run(together())


def test_equal_conversations_are_rendered_once():
    renderer = Counts()
    prompts = rendered_together(renderer, *[[user("hi")] for _ in range(16)], [user("ho")])

    assert renderer.renderings == 2
    assert len(set(map(id, prompts))) == 2
    assert prompts[0] == prompts[15] != prompts[16]


def test_two_renderers_do_not_share():
    first, second = Counts(), Counts()

    async def both() -> None:
        with sharing_prompts():
            await first_prompt(first, [user("hi")])
            await first_prompt(second, [user("hi")])

    run(both())
    assert (first.renderings, second.renderings) == (1, 1)


def test_outside_of_a_group_each_asks_for_itself():
    renderer = Counts()

    async def both() -> None:
        for _ in range(2):
            await first_prompt(renderer, [user("hi")])

    run(both())
    assert renderer.renderings == 2


def test_parts_are_not_compared():
    renderer = Counts()
    parts = [user([{"type": "text", "text": "hi"}])]
    rendered_together(renderer, parts, parts)

    assert renderer.renderings == 2


def test_an_env_that_changes_its_messages_afterwards_changes_nobody_elses_prompt():
    renderer = Counts()

    async def one_then_changed() -> tuple[ModelInput, ModelInput]:
        messages = [user("hi")]
        with sharing_prompts():
            first = await first_prompt(renderer, messages)
            messages[0]["content"] = "ho"
            return first, await first_prompt(renderer, [user("hi")])

    first, second = run(one_then_changed())
    assert first is second


def test_a_member_that_is_cancelled_takes_no_prompt_from_the_others():
    async def one_leaves() -> ModelInput:
        with sharing_prompts():
            leaver = asyncio.create_task(first_prompt(renderer, [user("hi")]))
            stayer = asyncio.create_task(first_prompt(renderer, [user("hi")]))
            await asyncio.sleep(0)
            leaver.cancel()
            return await stayer

    renderer = Counts()
    assert run(one_leaves()).length > 0
    assert renderer.renderings == 1


def test_an_error_of_the_renderer_reaches_every_member():
    class Fails(Counts):
        def build_generation_prompt(self, messages: Any, *rest: Any, **named: Any) -> ModelInput:
            raise ValueError("no such role")

    async def both() -> list[Any]:
        with sharing_prompts():
            work = (first_prompt(renderer, [user("hi")]) for _ in range(2))
            return await asyncio.gather(*work, return_exceptions=True)

    renderer = Fails()
    assert [str(error) for error in run(both())] == ["no such role"] * 2


# ------------------------------------------------------------ what is new

BEFORE = [user("hi")]
ANSWER: Message = {"role": "assistant", "content": "ho"}


@pytest.mark.parametrize(
    ("conversation", "new"),
    [
        ([*BEFORE, ANSWER], []),
        ([*BEFORE, ANSWER, user("more")], [user("more")]),
        ([*BEFORE, user("more")], None),
        (BEFORE, None),
        ([], None),
        ([user("HI"), ANSWER, user("more")], None),
        ([*BEFORE, {"role": "assistant", "content": "ho!"}, user("more")], None),
    ],
)
def test_what_is_new_follows_the_old_conversation_and_the_answer(
    conversation: list[Message], new: list[Message] | None
):
    assert new_since(BEFORE, ANSWER, conversation) == new


def test_a_snapshot_keeps_what_its_messages_were():
    messages = [user([{"type": "text", "text": "hi"}]), user("plain")]
    kept = snapshot(messages)
    messages[0]["content"][0]["text"] = "changed"  # type: ignore[index]
    messages[1]["content"] = "changed"

    assert kept == [user([{"type": "text", "text": "hi"}]), user("plain")]
