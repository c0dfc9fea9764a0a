"""Environments that speak messages, and the bridge to those that speak tokens.

A `MessageEnv` is what a user writes. `EnvFromMessageEnv` renders what it says, parses what the model
said, and settles the cases that the user's `step` never sees: an answer that was cut off, one that
does not parse, a context that is full.
"""

import inspect
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mint import ModelInput
from mint.recipe.messages import Message, get_text_content
from mint.recipe.rl.class_hints import hand_on, say_once
from mint.recipe.rl.held_loop import Watched
from mint.recipe.rl.prompts import extended, first_prompt, new_since, rendered, snapshot
from mint.recipe.rl.rollout_limits import ParseErrorPolicy, RolloutLimits
from mint.recipe.rl.types import (
    PARSE_ERROR_MASKED_METRIC_KEY,
    STOP_METRIC_PREFIX,
    Action,
    ActionExtra,
    Env,
    InitialObservationOverflow,
    Logs,
    Metrics,
    Observation,
    StepResult,
    StopCondition,
    StopReason,
)

if TYPE_CHECKING:
    from mint.recipe.renderers.base import Renderer

_log = logging.getLogger("mint.recipe.rl.message_env")

_NOTHING = ModelInput.empty()
"""Shown where nothing more is shown."""


@dataclass
class MessageStepResult:
    """A MessageEnv's answer to one message."""

    reward: float
    episode_done: bool
    next_messages: list[Message]
    """The whole conversation so far, since it is rendered as the next prompt. An env may return
    less; the model then sees no more than that."""
    metrics: dict[str, float] = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)
    next_stop_condition: StopCondition | None = None
    """None: the renderer's."""


class MessageEnv(ABC):
    """One episode of an environment that speaks messages. Used once."""

    @abstractmethod
    async def initial_observation(self) -> list[Message]:
        """The conversation that the episode begins with."""

    @abstractmethod
    async def step(self, message: Message) -> MessageStepResult:
        """What follows from the model's message."""

    async def observe_truncated_response(self, message: Message) -> list[Message] | None:
        """The conversation after an answer that was cut off; None ends the episode."""
        return None

    async def add_messages(self, messages: list[Message]) -> list[Message] | None:
        """The conversation with `messages` added from outside; None: this env takes none."""
        return None


class EnvFromMessageEnv(Env):
    """A MessageEnv that plays against a model, through a renderer.

    What `step` answers, first match first:

    1. cut off at its length: the overflow reward, and the end (see `terminate_on_length`);
    2. does not parse: the reward for that, and the end (see `terminate_on_parse_error`);
    3. the env goes on, and its next prompt leaves no room: the overflow reward *in place of* the
       env's, and the end;
    4. otherwise what the env says.

    In cases 1 and 2 the env's own `step` is not called.
    """

    def __init__(
        self,
        renderer: "Renderer",
        message_env: MessageEnv,
        failed_parse_reward: float = -1.0,
        terminate_on_parse_error: bool = True,
        max_trajectory_tokens: int | None = None,
        max_generation_tokens: int | None = None,
        context_overflow_reward: float = -0.1,
        terminate_on_length: bool = True,
        parse_error_policy: ParseErrorPolicy | None = None,
        rollout_limits: RolloutLimits | None = None,
        *,
        log_final_observation: bool = False,
    ) -> None:
        """
        Args:
            max_trajectory_tokens: a prompt may have as many, less `max_generation_tokens`.
            terminate_on_length: False asks the env what follows (`observe_truncated_response`).
            terminate_on_parse_error: False lets the model try the same prompt again.
            parse_error_policy: in place of both settings for answers that do not parse.
            rollout_limits: for the runner, which reads them here.
            log_final_observation: render what an env returns with its last step, for transcripts.
        """
        self.renderer = renderer
        self.message_env = message_env
        self.failed_parse_reward = failed_parse_reward
        self.terminate_on_parse_error = terminate_on_parse_error
        self.max_trajectory_tokens = max_trajectory_tokens
        self.max_generation_tokens = max_generation_tokens
        self.context_overflow_reward = context_overflow_reward
        self.terminate_on_length = terminate_on_length
        self.parse_error_policy = parse_error_policy
        self.rollout_limits = rollout_limits
        self.log_final_observation = log_final_observation
        self._messages: list[Message] = []
        self._prompt = _NOTHING
        self._stop: StopCondition = []
        self._parse_errors_in_a_row = 0

    def __getattr__(self, name: str) -> Any:
        if name == "example_id":
            return self.message_env.example_id  # type: ignore[attr-defined]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # ------------------------------------------------------------- the game

    async def initial_observation(
        self,
    ) -> tuple[Observation, StopCondition] | InitialObservationOverflow:
        messages = await self.message_env.initial_observation()
        prompt = await first_prompt(self.renderer, messages)
        if self._overflows(prompt):
            return InitialObservationOverflow(
                self.context_overflow_reward,
                {"max_tokens_reached": 1.0, **_stopped(StopReason.max_tokens)},
                {
                    "initial_overflow": f"the first prompt has {prompt.length} tokens; {self._room()}"
                },
            )
        self._show(messages, prompt, None)
        return self._prompt, self._stop

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        is_cut = (extra or {}).get("stop_reason") == "length"
        if is_cut and self.terminate_on_length:
            return self._cut_off()
        message, termination = self.renderer.parse_response(action)
        if is_cut:
            return await self._after_cut(message)
        if not termination:
            return await self._after_parse_error(message, str(termination), action)
        self._parse_errors_in_a_row = 0
        said = snapshot([message])[0]
        result = await Watched(self.message_env.step(message), type(self.message_env))
        if result is None:
            raise TypeError(
                f"{type(self.message_env).__name__}.step returned nothing. It has to return a "
                "MessageStepResult."
            )
        if result.episode_done:
            return await self._last(result)
        has_clean_end = termination == "stop_sequence"  # what follows can be put after it
        return await self._next(result, said, action if has_clean_end else None)

    async def _last(self, result: MessageStepResult) -> StepResult:
        ob = _NOTHING
        if self.log_final_observation and result.next_messages:
            ob = await rendered(self.renderer, result.next_messages)
        stop = result.next_stop_condition or self._stop
        return StepResult(result.reward, True, ob, stop, result.metrics, result.logs)

    async def _next(
        self, result: MessageStepResult, said: Message, action: Action | None
    ) -> StepResult:
        """The env goes on, if the context has room for it."""
        self._hint_at_increment(result.next_messages)
        prompt = await self._prompt_after(result.next_messages, said, action)
        if self._overflows(prompt):
            return self._full(result.metrics, result.logs)
        self._show(result.next_messages, prompt, result.next_stop_condition)
        return StepResult(result.reward, False, prompt, self._stop, result.metrics, result.logs)

    async def _prompt_after(
        self, messages: list[Message], said: Message, action: Action | None
    ) -> ModelInput:
        """The next prompt: the last one made longer where that gives the same text."""
        if action is not None and self.renderer.has_extension_property is True:
            new = new_since(self._messages, said, messages)
            if new is not None:
                longer = await extended(self.renderer, self._prompt, action, new)
                if longer is not None:
                    return longer
        return await rendered(self.renderer, messages)

    # ------------------------------------------- what the env's step never sees

    def _cut_off(self) -> StepResult:
        metrics = {"max_tokens_reached": 1.0, **_stopped(StopReason.max_tokens)}
        return self._over(self.context_overflow_reward, metrics)

    def _full(self, metrics: Metrics, logs: Logs) -> StepResult:
        full = {"context_overflow": 1.0, **_stopped(StopReason.context_overflow)}
        return self._over(self.context_overflow_reward, {**metrics, **full}, logs)

    async def _after_cut(self, message: Message) -> StepResult:
        messages = await self.message_env.observe_truncated_response(message)
        if messages is None:
            return self._cut_off()
        return await self._on_with(messages, 0.0, {}, {"truncated_turn": 1})

    async def _after_parse_error(self, message: Message, kind: str, action: Action) -> StepResult:
        policy = self.parse_error_policy
        if policy is not None:
            return await self._by_policy(policy, message, kind, action)
        metrics: Metrics = {"parse_error": 1.0}
        if not self.terminate_on_parse_error:
            return StepResult(self.failed_parse_reward, False, self._prompt, self._stop, metrics)
        metrics |= _stopped(StopReason.parse_error)
        return self._over(self.failed_parse_reward, metrics)

    async def _by_policy(
        self, policy: ParseErrorPolicy, message: Message, kind: str, action: Action
    ) -> StepResult:
        details = _what_is_wrong(message, action)
        metrics: Metrics = {"parse_error": 1.0}
        if policy.mask_error_turns:
            metrics[PARSE_ERROR_MASKED_METRIC_KEY] = 1.0
        logs: Logs = {"parse_failure_kind": kind, "parse_failure_detail": details}
        if self._parse_errors_in_a_row < policy.max_consecutive:
            self._parse_errors_in_a_row += 1
            request = policy.retry_message_template.replace("{details}", details)
            messages = await self.message_env.add_messages(
                [message, {"role": "user", "content": request}]
            )
            if messages is not None:
                return await self._on_with(messages, -policy.penalty_per_error, metrics, logs)
        return self._over(
            policy.terminal_reward, {**metrics, **_stopped(StopReason.parse_error)}, logs
        )

    async def _on_with(
        self, messages: list[Message], reward: float, metrics: Metrics, logs: Logs
    ) -> StepResult:
        """Go on with a conversation that the env's `step` did not give."""
        prompt = await rendered(self.renderer, messages)
        if self._overflows(prompt):
            return self._full(metrics, logs)
        self._show(messages, prompt, None)
        return StepResult(reward, False, prompt, self._stop, metrics, logs)

    def _over(self, reward: float, metrics: Metrics, logs: Logs | None = None) -> StepResult:
        return StepResult(reward, True, _NOTHING, self._stop, metrics, logs or {})

    # ------------------------------------------------------- for the runner

    async def inject_messages(self, messages: list[Message]) -> Observation:
        """Add messages from outside to the conversation, and return the prompt that follows.

        Raises:
            TypeError: the env takes none.
        """
        conversation = await self.message_env.add_messages(messages)
        if conversation is None:
            raise TypeError(
                f"{type(self.message_env).__name__} takes no messages from outside. Give it an "
                "`async def add_messages(self, messages)` that adds them to its conversation and "
                "returns all of it."
            )
        self._show(conversation, await rendered(self.renderer, conversation), None)
        return self._prompt

    def set_parse_error_policy(self, policy: ParseErrorPolicy) -> None:
        """Treat answers that do not parse by `policy`, here and in the env if it has a say."""
        self.parse_error_policy = policy
        self._hand_on("set_parse_error_policy", policy)

    def set_max_tool_calls(self, n: int) -> None:
        """Let the env count its tool calls."""
        self._hand_on("set_max_tool_calls", n)

    def set_tool_execution(self, mode: str) -> None:
        """Let the env run the tool calls of one answer in parallel or in sequence."""
        self._hand_on("set_tool_execution", mode)

    def set_pass_all_messages_to_grader(self, does: bool) -> None:
        """Let the env show its grader the whole conversation."""
        self._hand_on("set_pass_all_messages_to_grader", does)

    async def close(self) -> None:
        """Close the env, if it has something to close."""
        closing = getattr(self.message_env, "close", lambda: None)()
        if inspect.isawaitable(closing):
            await closing

    def _hand_on(self, setter: str, value: Any) -> None:
        hand_on(_log, self.message_env, setter, value)

    # --------------------------------------------------------------- within

    def _overflows(self, prompt: ModelInput) -> bool:
        most = self.max_trajectory_tokens
        return most is not None and prompt.length + (self.max_generation_tokens or 0) > most

    def _room(self) -> str:
        return (
            f"max_trajectory_tokens={self.max_trajectory_tokens} less "
            f"max_generation_tokens={self.max_generation_tokens or 0} leaves no room for it"
        )

    def _show(
        self, messages: list[Message], prompt: ModelInput, stop: StopCondition | None
    ) -> None:
        """Remember what the model is shown next."""
        self._messages = snapshot(messages)
        self._prompt = prompt
        self._stop = self.renderer.get_stop_sequences() if stop is None else stop

    def _hint_at_increment(self, messages: list[Message]) -> None:
        inner = type(self.message_env)
        if len(messages) < len(self._messages):
            say_once(
                _log,
                inner,
                "%s.step returned %d messages after a prompt of %d. next_messages is the whole "
                "conversation: the model no longer sees the earlier turns, and each turn is "
                "trained on alone. If that is meant, all is well.",
                *(inner.__name__, len(messages), len(self._messages)),
            )


def _stopped(reason: StopReason) -> Metrics:
    return {f"{STOP_METRIC_PREFIX}{reason}": 1.0}


def _what_is_wrong(message: Message, action: Action) -> str:
    """For the model, which is to do better, and for the log."""
    for call in message.get("unparsed_tool_calls", []):
        return f"a tool call could not be read ({call.error}): {call.raw_text[:200]}"
    ending = get_text_content(message)[-80:]
    return f"the message of {len(action)} tokens does not end as it should: …{ending}"
