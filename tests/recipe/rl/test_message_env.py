"""EnvFromMessageEnv: what a step answers, case by case, and which cases the user's env sees."""

import asyncio
import logging
from typing import Any

import pytest
from tests.recipe.rl.players import END, RENDERER, TOKENIZER, Chat, run, said, shown

from mint import ModelInput
from mint.recipe.messages import Message
from mint.recipe.renderers.layout import ParseTermination
from mint.recipe.renderers.qwen3 import Qwen3InstructRenderer
from mint.recipe.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from mint.recipe.rl.rollout_limits import ParseErrorPolicy
from mint.recipe.rl.types import ActionExtra, InitialObservationOverflow, StepResult

HI = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
HI_TOKENS = len(TOKENIZER.encode(HI))
CUT: ActionExtra = {"stop_reason": "length"}
UNENDED = TOKENIZER.encode("never end")


async def after(env: EnvFromMessageEnv, *actions: list[int], extra: Any = None) -> StepResult:
    """The answer to the last of `actions`."""
    first = await env.initial_observation()
    assert not isinstance(first, InitialObservationOverflow)
    result = None
    for action in actions:
        result = await env.step(action, extra=extra)
    assert result is not None
    return result


def wrapped(inner: MessageEnv, **settings: Any) -> EnvFromMessageEnv:
    return EnvFromMessageEnv(settings.pop("renderer", RENDERER), inner, **settings)


class Patient(Chat):
    """Takes cut answers and messages from outside."""

    async def observe_truncated_response(self, message: Message) -> list[Message] | None:
        self.history += [message, {"role": "user", "content": "shorter"}]
        return self.history

    async def add_messages(self, messages: list[Message]) -> list[Message] | None:
        self.history += messages
        return self.history


# ------------------------------------------------------------- first prompt


def test_the_first_prompt_is_the_rendered_conversation_with_the_renderers_stop():
    first = run(wrapped(Chat()).initial_observation())

    assert isinstance(first, tuple)
    prompt, stop = first
    assert shown(prompt) == HI
    assert stop == [END]


def test_a_first_prompt_that_leaves_no_room_is_an_overflow_and_one_token_less_is_not():
    room = {"max_trajectory_tokens": HI_TOKENS + 8, "max_generation_tokens": 8}
    fits = run(wrapped(Chat(), **room).initial_observation())
    room["max_trajectory_tokens"] -= 1
    overflow = run(wrapped(Chat(), **room, context_overflow_reward=-0.3).initial_observation())

    assert isinstance(fits, tuple)
    assert isinstance(overflow, InitialObservationOverflow)
    assert overflow.reward == -0.3
    assert overflow.metrics == {"max_tokens_reached": 1.0, "stop/max_tokens": 1.0}
    assert f"{HI_TOKENS} tokens" in str(overflow.logs["initial_overflow"])


# ----------------------------------------------------- answers that were cut


def test_a_cut_answer_ends_the_episode_and_the_env_is_not_asked():
    inner = Chat()
    result = run(after(wrapped(inner), said("4"), extra=CUT))  # though it parses

    assert (result.reward, result.episode_done) == (-0.1, True)
    assert result.metrics == {"max_tokens_reached": 1.0, "stop/max_tokens": 1.0}
    assert result.next_observation.length == 0
    assert inner.heard == []


def test_an_env_that_takes_cut_answers_goes_on_with_what_it_makes_of_them():
    inner = Patient()
    result = run(after(wrapped(inner, terminate_on_length=False), UNENDED, extra=CUT))

    assert (result.reward, result.episode_done) == (0.0, False)
    assert shown(result.next_observation).endswith("shorter<|im_end|>\n<|im_start|>assistant\n")
    assert result.metrics == {}
    assert result.logs == {"truncated_turn": 1}
    assert inner.heard == []


def test_a_cut_answer_whose_next_prompt_is_too_long_ends_with_a_full_context():
    env = wrapped(Patient(), terminate_on_length=False, max_trajectory_tokens=HI_TOKENS + 5)
    result = run(after(env, UNENDED, extra=CUT))

    assert (result.reward, result.episode_done) == (-0.1, True)
    assert result.metrics == {"context_overflow": 1.0, "stop/context_overflow": 1.0}
    assert result.next_observation.length == 0


def test_an_env_that_does_not_take_cut_answers_ends_as_if_it_had_not_been_asked():
    result = run(after(wrapped(Chat(), terminate_on_length=False), UNENDED, extra=CUT))

    assert (result.reward, result.episode_done) == (-0.1, True)
    assert result.metrics == {"max_tokens_reached": 1.0, "stop/max_tokens": 1.0}


# --------------------------------------------- answers that do not parse


def test_an_answer_that_does_not_parse_ends_the_episode_and_the_env_is_not_asked():
    inner = Chat()
    result = run(after(wrapped(inner, failed_parse_reward=-2.0), UNENDED))

    assert (result.reward, result.episode_done) == (-2.0, True)
    assert result.metrics == {"parse_error": 1.0, "stop/parse_error": 1.0}
    assert result.next_observation.length == 0
    assert inner.heard == []


def test_an_answer_that_does_not_parse_can_be_tried_again_at_the_same_prompt():
    env = wrapped(Chat(), terminate_on_parse_error=False)
    result = run(after(env, UNENDED))

    assert (result.reward, result.episode_done) == (-1.0, False)
    assert result.metrics == {"parse_error": 1.0}
    assert shown(result.next_observation) == HI
    assert result.next_stop_condition == [END]


def test_a_renderer_that_reports_success_as_a_bool_works_too():
    class Older(Qwen3InstructRenderer):
        def parse_response(self, response: list[int]) -> Any:
            return {"role": "assistant", "content": "?"}, False

    result = run(after(wrapped(Chat(), renderer=Older(TOKENIZER)), said("4")))

    assert "parse_error" in result.metrics


def test_malformed_is_not_a_success():
    assert not ParseTermination.MALFORMED


def test_a_policy_ends_the_episode_with_its_own_reward_and_says_what_was_wrong():
    result = run(after(wrapped(Chat(), parse_error_policy=ParseErrorPolicy()), UNENDED))

    assert (result.reward, result.episode_done) == (0.0, True)
    assert result.metrics == {"parse_error": 1.0, "stop/parse_error": 1.0}
    assert result.logs["parse_failure_kind"] == "malformed"
    assert "never end" in str(result.logs["parse_failure_detail"])


def test_a_masking_policy_marks_the_turn():
    policy = ParseErrorPolicy(mask_error_turns=True, terminal_reward=-3.0)
    result = run(after(wrapped(Chat(), parse_error_policy=policy), UNENDED))

    assert result.reward == -3.0
    assert result.metrics["parse_error_masked"] == 1.0


def test_a_policy_asks_again_as_often_as_it_says_where_the_env_takes_messages():
    policy = ParseErrorPolicy(
        max_consecutive=1, retry_message_template="Again: {details}", penalty_per_error=0.25
    )

    async def twice_and_well_between() -> list[StepResult]:
        env = wrapped(Patient(turns=2), parse_error_policy=policy)
        await env.initial_observation()
        return [await env.step(action) for action in (UNENDED, said("ok"), UNENDED, UNENDED)]

    first, _, third, fourth = run(twice_and_well_between())

    assert (first.reward, first.episode_done) == (-0.25, False)
    assert "Again: the message of 9 tokens" in shown(first.next_observation)
    assert third.episode_done is False  # the good answer between counts anew
    assert (fourth.reward, fourth.episode_done) == (0.0, True)


def test_a_policy_cannot_ask_again_where_the_env_takes_no_messages():
    policy = ParseErrorPolicy(max_consecutive=5)
    result = run(after(wrapped(Chat(), parse_error_policy=policy), UNENDED))

    assert result.episode_done


# ------------------------------------------------- answers that the env sees


def test_a_continuing_step_gives_the_envs_reward_and_the_next_prompt():
    inner = Chat(turns=2)
    result = run(after(wrapped(inner), said("4")))

    assert (result.reward, result.episode_done) == (1.0, False)
    assert shown(result.next_observation) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
        "<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n"
    )
    assert result.metrics == {"correct": 0.5}
    assert result.logs == {"note": "on"}
    assert inner.heard == [{"role": "assistant", "content": "4"}]


def test_an_answer_that_ends_with_the_end_of_text_reaches_the_env():
    class EndsByEos(Qwen3InstructRenderer):
        def parse_response(self, response: list[int]) -> tuple[Message, ParseTermination]:
            return {"role": "assistant", "content": "4"}, ParseTermination.EOS

    inner = Chat()
    result = run(after(wrapped(inner, renderer=EndsByEos(TOKENIZER)), said("4")))

    assert result.reward == 1.0
    assert len(inner.heard) == 1


def test_the_envs_own_stop_condition_comes_before_the_renderers():
    class Asks(Chat):
        async def step(self, message: Message) -> MessageStepResult:
            return MessageStepResult(0.0, False, self.history, next_stop_condition=["!"])

    assert run(after(wrapped(Asks()), said("4"))).next_stop_condition == ["!"]


def test_a_full_context_replaces_the_reward_and_keeps_metrics_and_logs():
    env = wrapped(Chat(turns=2), max_trajectory_tokens=HI_TOKENS + 10)
    result = run(after(env, said("4")))

    assert (result.reward, result.episode_done) == (-0.1, True)
    assert result.metrics == {
        "correct": 0.5, "context_overflow": 1.0, "stop/context_overflow": 1.0,
    }  # fmt: skip
    assert result.logs == {"note": "on"}
    assert result.next_observation.length == 0


def test_a_full_context_leaves_the_reward_of_a_last_step_alone():
    class LongGoodbye(Chat):
        async def step(self, message: Message) -> MessageStepResult:
            return MessageStepResult(1.0, True, [{"role": "user", "content": "x" * 500}])

    env = wrapped(LongGoodbye(), max_trajectory_tokens=HI_TOKENS + 10)
    result = run(after(env, said("4")))

    assert (result.reward, result.episode_done, result.metrics) == (1.0, True, {})


@pytest.mark.parametrize("content", ["bye", [{"type": "text", "text": "bye"}]])
@pytest.mark.parametrize("messages", [0, 1])
@pytest.mark.parametrize("is_logged", [False, True])
def test_the_last_step_may_return_anything(content: Any, messages: int, is_logged: bool):
    class Ends(Chat):
        async def initial_observation(self) -> list[Message]:
            return [{"role": "user", "content": content}]

        async def step(self, message: Message) -> MessageStepResult:
            return MessageStepResult(1.0, True, [{"role": "user", "content": content}] * messages)

    result = run(after(wrapped(Ends(), log_final_observation=is_logged), said("4")))

    assert result.reward == 1.0
    is_rendered = bool(messages) and is_logged
    assert (result.next_observation.length > 0) is is_rendered


def test_a_conversation_in_parts_is_rendered_like_one_in_strings():
    opening: Any = [{"type": "text", "text": "hi"}]
    first = run(wrapped(Chat(opening=opening)).initial_observation())

    assert isinstance(first, tuple)
    assert shown(first[0]) == HI


# ----------------------------------------------------------- longer prompts


class Bridges(Qwen3InstructRenderer):
    """Counts what it is asked for."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self.whole_renderings = 0
        self.bridged: list[int] = []

    def build_generation_prompt(self, messages: Any, *rest: Any, **named: Any) -> ModelInput:
        self.whole_renderings += 1
        return super().build_generation_prompt(messages, *rest, **named)

    def bridge(self, previous: ModelInput, new_messages: Any, role: str = "") -> ModelInput:
        self.bridged.append(len(new_messages))
        return super().bridge(previous, new_messages)


ODD = [*TOKENIZER.encode("caf"), 0xC3, END]
"""Half of a UTF-8 letter: its text would be encoded otherwise."""


def test_history_keeps_the_tokens_that_were_sampled():
    renderer = Bridges(TOKENIZER)
    first = TOKENIZER.encode(HI)
    result = run(after(wrapped(Chat(turns=2), renderer=renderer), ODD))

    prompt = result.next_observation.to_ints()
    assert prompt[: len(first) + len(ODD)] == [*first, *ODD]
    assert renderer.whole_renderings == 1
    assert renderer.bridged == [1]


def test_each_turn_renders_its_new_messages_only():
    renderer = Bridges(TOKENIZER)
    run(after(wrapped(Chat(turns=9), renderer=renderer), *[said("4")] * 8))

    assert renderer.whole_renderings == 1
    assert renderer.bridged == [1] * 8


@pytest.mark.parametrize(
    "length", [1, 5000]
)  # short ones are rendered in place, others in a thread
def test_a_longer_prompt_is_what_rendering_everything_would_give(length: int):
    class Lecture(Chat):
        async def step(self, message: Message) -> MessageStepResult:
            result = await super().step(message)
            self.history[-1]["content"] = "x" * length
            return result

    inner, renderer = Lecture(turns=2), Bridges(TOKENIZER)
    result = run(after(wrapped(inner, renderer=renderer), said("4")))

    assert renderer.bridged == [1]
    whole = RENDERER.build_generation_prompt(inner.history)
    assert result.next_observation.to_ints() == whole.to_ints()


def test_an_env_that_rewrites_history_gets_it_rendered():
    class Forgets(Chat):
        async def step(self, message: Message) -> MessageStepResult:
            result = await super().step(message)
            result.next_messages[0]["content"] = "forgotten"
            return result

    renderer = Bridges(TOKENIZER)
    result = run(after(wrapped(Forgets(turns=2), renderer=renderer), said("4")))

    assert renderer.bridged == []
    assert "forgotten" in shown(result.next_observation)


def test_an_env_that_rewrites_the_answer_gets_it_rendered():
    class Corrects(Chat):
        async def step(self, message: Message) -> MessageStepResult:
            message["content"] = "5"
            return await super().step(message)

    renderer = Bridges(TOKENIZER)
    result = run(after(wrapped(Corrects(turns=2), renderer=renderer), said("4")))

    assert renderer.bridged == []
    assert "assistant\n5<|im_end|>" in shown(result.next_observation)


def test_a_renderer_that_only_seems_to_extend_prompts_is_not_bridged():
    class Mocked(Bridges):
        has_extension_property = "a mock"  # type: ignore[assignment]

    renderer = Mocked(TOKENIZER)
    run(after(wrapped(Chat(turns=2), renderer=renderer), said("4")))

    assert renderer.bridged == []


def test_a_renderer_that_cannot_bridge_renders_the_whole_conversation():
    class CannotBridge(Bridges):
        def bridge(self, previous: ModelInput, new_messages: Any, role: str = "") -> ModelInput:
            raise NotImplementedError

    result = run(after(wrapped(Chat(turns=2), renderer=CannotBridge(TOKENIZER)), said("4")))

    assert shown(result.next_observation).startswith(HI + "4<|im_end|>")


# -------------------------------------------------------------------- hints


def test_an_env_that_returns_only_the_increment_is_told_once(caplog: pytest.LogCaptureFixture):
    class Increment(Chat):
        async def initial_observation(self) -> list[Message]:
            return [{"role": "system", "content": "play"}, {"role": "user", "content": "hi"}]

        async def step(self, message: Message) -> MessageStepResult:
            return MessageStepResult(0.0, False, [{"role": "user", "content": "lower"}])

    with caplog.at_level(logging.WARNING, "mint.recipe"):
        results = [run(after(wrapped(Increment()), said("4"))) for _ in range(3)]

    assert shown(results[0].next_observation).startswith("<|im_start|>user\nlower")
    [hint] = caplog.messages
    assert "Increment.step returned 1 messages after a prompt of 2" in hint


def test_a_whole_conversation_gives_no_hint(caplog: pytest.LogCaptureFixture):
    run(after(wrapped(Chat(turns=3)), said("4"), said("4")))

    assert caplog.messages == []


# --------------------------------------------------------------- for runners


def test_messages_from_outside_become_the_next_prompt():
    async def injected() -> ModelInput:
        env = wrapped(Patient())
        await env.initial_observation()
        return await env.inject_messages([{"role": "user", "content": "hurry"}])

    assert "hurry" in shown(run(injected()))


def test_an_env_that_takes_no_messages_says_how_it_could():
    with pytest.raises(TypeError, match=r"Chat takes no messages.*add_messages"):
        run(wrapped(Chat()).inject_messages([]))


def test_settings_reach_an_env_that_has_a_say(caplog: pytest.LogCaptureFixture):
    class Told(Chat):
        told: Any = ()

        def set_max_tool_calls(self, n: int) -> None:
            self.told = (*self.told, n)

        def set_parse_error_policy(self, policy: ParseErrorPolicy) -> None:
            self.told = (*self.told, policy)

    inner, policy = Told(), ParseErrorPolicy(terminal_reward=-4.0)
    env = wrapped(inner)
    env.set_max_tool_calls(3)
    env.set_parse_error_policy(policy)

    assert inner.told == (3, policy)
    assert env.parse_error_policy is policy
    assert caplog.messages == []


def test_settings_that_an_env_does_not_know_are_named_once(caplog: pytest.LogCaptureFixture):
    class Deaf(Chat): ...

    for _ in range(2):
        wrapped(Deaf()).set_max_tool_calls(3)

    [warning] = caplog.messages
    assert "Deaf has no set_max_tool_calls" in warning


def test_the_wrapper_shows_the_envs_example_id_and_no_other_name():
    class Named(Chat):
        example_id = "gsm8k-17"

    assert wrapped(Named()).example_id == "gsm8k-17"
    assert not hasattr(wrapped(Chat()), "example_id")
    assert not hasattr(wrapped(Named()), "anything_else")


def test_closing_the_wrapper_closes_an_env_that_can_be_closed():
    class Closes(Chat):
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    inner = Closes()
    run(wrapped(inner).close())
    run(wrapped(Chat()).close())

    assert inner.closed == 1


def test_an_env_that_forgets_to_return_is_named():
    class Forgets(Chat):
        async def step(self, message: Message) -> Any:
            await super().step(message)

    with pytest.raises(TypeError, match=r"Forgets\.step returned nothing.*a MessageStepResult"):
        run(after(wrapped(Forgets()), said("4")))


def test_many_envs_render_at_once_without_sharing_state():
    async def all_at_once() -> list[str]:
        envs = [wrapped(Chat(opening=f"number {n}")) for n in range(64)]
        firsts = await asyncio.gather(*(env.initial_observation() for env in envs))
        return [shown(first[0]) for first in firsts if isinstance(first, tuple)]

    prompts = run(all_at_once())
    assert [f"number {n}<" in prompt for n, prompt in enumerate(prompts)] == [True] * 64
