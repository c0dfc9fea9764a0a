"""Rollouts against a real server, with the SDK's own client and its own thread."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.recipe.rl.players import Chat, Envs, run

import mint
from mint import ModelInput, types
from mint.recipe.completers import TinkerTokenCompleter, TokenCompleter, TokensWithLogprobs
from mint.recipe.messages import Message
from mint.recipe.renderers import get_renderer
from mint.recipe.renderers.layout import ParseTermination
from mint.recipe.renderers.role_colon import RoleColonRenderer
from mint.recipe.rl.message_env import EnvFromMessageEnv, MessageStepResult
from mint.recipe.rl.rollouts import do_group_rollout
from mint.testing.service import local_service

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        pytest.MonkeyPatch.context() as patch,
        local_service() as service,
    ):
        for name, value in service.environment().items():
            patch.setenv(name, value)
        connection = mint.ServiceClient(base_url=service.url, api_key=service.key)
        yield connection.create_sampling_client(base_model=service.model).result()
        connection.close("success").result()


class Lenient(RoleColonRenderer):
    """Takes whatever an untrained model says for a whole answer."""

    def parse_response(self, response: list[int]) -> tuple[Message, ParseTermination]:
        message, _ = super().parse_response(response)
        return message, ParseTermination.STOP_SEQUENCE


class Whole(TokenCompleter):
    """A completer whose answers all count as ended."""

    def __init__(self, inner: TokenCompleter) -> None:
        self.inner = inner

    async def __call__(
        self, model_input: ModelInput, stop: Any, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        return replace(await self.inner(model_input, stop), stop_reason="stop")


class AsksAJudge(Chat):
    """Waits for another sampling call in its step, holding the event loop meanwhile."""

    def __init__(self, judge: Any) -> None:
        super().__init__(turns=2)
        self.judge = judge

    async def step(self, message: Message) -> MessageStepResult:
        params = types.SamplingParams(max_tokens=2)
        verdict = self.judge.sample(ModelInput.from_ints([1, 2]), 1, params).result()
        assert len(verdict.sequences[0].tokens) <= 2
        return await super().step(message)


@pytest.mark.timeout(120)
def test_a_step_that_blocks_on_the_sdk_stalls_the_loop_and_does_not_deadlock(client: Any):
    renderer = Lenient(client.get_tokenizer())
    policy = Whole(TinkerTokenCompleter(client, max_tokens=4))
    envs = [EnvFromMessageEnv(renderer, AsksAJudge(client)) for _ in range(4)]

    group = run(do_group_rollout(Envs(envs), policy))

    assert group.get_total_rewards() == [2.0] * 4


def test_members_of_a_joined_request_get_tokens_and_logprobs_of_their_own(client: Any):
    renderer = get_renderer("role_colon", client.get_tokenizer())
    policy = TinkerTokenCompleter(client, max_tokens=6)
    group = run(
        do_group_rollout(Envs([EnvFromMessageEnv(renderer, Chat()) for _ in range(4)]), policy)
    )

    actions = [one.transitions[0].ac for one in group.trajectories_G]
    assert all(1 <= len(action.tokens) == len(action.logprobs) <= 6 for action in actions)
    assert len({tuple(action.tokens) for action in actions}) > 1
    assert len({action.sequence_id for action in actions}) == 4
