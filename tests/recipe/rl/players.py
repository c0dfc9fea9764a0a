"""Policies that answer by a script, and envs that answer by a rule."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Literal, TypeVar

from tests.recipe.tokens import ByteTokenizer

from mint import ModelInput
from mint.recipe.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from mint.recipe.messages import Message
from mint.recipe.renderers.qwen3 import Qwen3InstructRenderer
from mint.recipe.rl.message_env import MessageEnv, MessageStepResult
from mint.recipe.rl.types import Env, EnvGroupBuilder, StepResult

T = TypeVar("T")

TOKENIZER = ByteTokenizer()
RENDERER = Qwen3InstructRenderer(TOKENIZER)
"""Its stop token is <|im_end|>, and prompts extend one another."""
END = TOKENIZER.encode("<|im_end|>")[0]


def said(text: str) -> list[int]:
    """The tokens of a whole answer."""
    return [*TOKENIZER.encode(text), END]


def shown(prompt: ModelInput) -> str:
    """What a prompt says."""
    return TOKENIZER.decode(prompt.to_ints())


def sampled(
    tokens: Sequence[int], stop_reason: Literal["stop", "length"] = "stop"
) -> TokensWithLogprobs:
    return TokensWithLogprobs(list(tokens), [-0.5] * len(tokens), stop_reason)


class Script(TokenCompleter):
    """Says what is written, then its last line again; a text is a whole answer."""

    def __init__(self, *lines: str | TokensWithLogprobs) -> None:
        self.lines = list(lines)
        self.prompts: list[ModelInput] = []
        self.caps: list[int | None] = []

    async def __call__(
        self, model_input: ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        self.prompts.append(model_input)
        self.caps.append(max_tokens)
        line = self.lines.pop(0) if len(self.lines) > 1 else self.lines[0]
        return sampled(said(line)) if isinstance(line, str) else line


class Silent(TokenCompleter):
    """Never answers."""

    def __init__(self) -> None:
        self.waiting = 0

    async def __call__(
        self, model_input: ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
        raise AssertionError("unreachable")


class Chat(MessageEnv):
    """Keeps the whole conversation; the episode takes `turns` answers, worth 1 each."""

    def __init__(self, turns: int = 1, opening: str = "hi") -> None:
        self.turns = turns
        self.history: list[Message] = [{"role": "user", "content": opening}]
        self.heard: list[Message] = []

    async def initial_observation(self) -> list[Message]:
        return self.history

    async def step(self, message: Message) -> MessageStepResult:
        self.heard.append(message)
        if len(self.heard) == self.turns:
            return MessageStepResult(1.0, True, [], {"correct": 1.0}, {"note": "last"})
        self.history += [message, {"role": "user", "content": "more"}]
        return MessageStepResult(1.0, False, self.history, {"correct": 0.5}, {"note": "on"})


class Count(Env):
    """Shows one token a turn, and ends after `turns` turns, each worth 1."""

    def __init__(self, turns: int = 1) -> None:
        self.turns = turns
        self.steps: list[tuple[list[int], Any]] = []

    async def initial_observation(self) -> tuple[ModelInput, StopCondition]:
        return ModelInput.from_ints([1]), [0]

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        self.steps.append((action, extra))
        done = len(self.steps) == self.turns
        return StepResult(1.0, done, ModelInput.from_ints([1, len(self.steps)]), [0])


class Failing(Count):
    """Fails in its first step."""

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        raise RuntimeError("the sandbox is gone")


class Envs(EnvGroupBuilder):
    """Makes one given group of envs after the other, and remembers being cleaned up."""

    def __init__(self, *groups: Sequence[Env]) -> None:
        self.groups = [list(group) for group in groups]
        self.made = 0
        self.cleanups = 0

    async def make_envs(self) -> Sequence[Env]:
        self.made += 1
        return self.groups[self.made - 1]

    async def cleanup(self) -> None:
        self.cleanups += 1


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which may leave no task of its own behind."""

    async def alone() -> T:
        try:
            return await work
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"left running: {left}"

    return asyncio.run(alone())
