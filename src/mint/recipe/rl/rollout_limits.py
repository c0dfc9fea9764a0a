"""Where an episode ends that would not end by itself, and what its reward is then worth."""

from collections.abc import Container, Iterator
from typing import Literal

import chz

from mint.recipe.rl.rollout_hooks import RolloutState
from mint.recipe.rl.types import StopReason

RETRY_MESSAGE = (
    "Your last message could not be read: {details}\n"
    "Write it again, complete and in the required format."
)


@chz.chz
class RolloutLimits:
    """Bounds of one episode. None is no bound; everything else is positive."""

    max_turns: int | None = None
    max_trajectory_tokens: int | None = None
    """Prompt and answer of one turn together: the context an episode may grow to."""
    max_sampled_tokens: int | None = None
    """Sampled tokens of all turns together."""
    max_tool_calls: int | None = None
    """Counted by the env: only it knows what a call is."""
    max_turn_tokens: int | None = None
    """Sampled tokens of one turn."""
    rollout_timeout_seconds: float | None = None
    """The episode then ends where it stands, without an error."""
    sampling_turn_timeout_seconds: float | None = None
    """The episode then fails, so that a strategy can replace it."""

    @chz.validate
    def _positive(self) -> None:
        for name, value in chz.asdict(self).items():
            if value is not None and not value > 0:
                raise ValueError(
                    f"RolloutLimits.{name}={value}: a limit is positive. Leave it out, or give "
                    "None, for no limit."
                )


@chz.chz
class ParseErrorPolicy:
    """What follows an answer that does not parse."""

    max_consecutive: int = 0
    """So many in a row are answered with the retry message; the next one ends the episode. Only an
    env that takes messages (`add_messages`) can be told to try again."""
    retry_message_template: str = RETRY_MESSAGE
    """What the model is told; `{details}` becomes what was wrong."""
    penalty_per_error: float = 0.0
    """Taken off the reward for each answer that is tried again. Not negative."""
    terminal_reward: float = 0.0
    """The reward of the answer that ends the episode."""
    mask_error_turns: bool = False
    """Keep such answers as context, and do not train on them."""

    @chz.validate
    def _makes_sense(self) -> None:
        if self.max_consecutive < 0:
            raise ValueError(
                f"ParseErrorPolicy.max_consecutive={self.max_consecutive}: use 0 to end the "
                "episode at the first answer that does not parse."
            )
        if self.penalty_per_error < 0:
            raise ValueError(
                f"ParseErrorPolicy.penalty_per_error={self.penalty_per_error} would reward "
                "mistakes: it is subtracted. Give its size, without a sign."
            )


@chz.chz
class TerminationRewardPolicy:
    """What the reward of an episode that a limit ended is worth."""

    zero_reward_on_limit: bool = False
    """Such an episode's total reward becomes min(total, 0): half an answer earns nothing."""
    limit_stop_reasons: tuple[str, ...] = (
        StopReason.max_tokens,
        StopReason.max_sampled_tokens,
        StopReason.max_turns,
        StopReason.max_tool_calls,
        StopReason.rollout_timeout,
    )
    """What counts as a limit."""
    skip_grading_on_timeout: bool = False
    """Spare the grader a group whose members all timed out, if the clamp would apply to them."""
    grader_timeout_seconds: float | None = None
    """Longest time for `compute_group_rewards`; beyond it the group has failed."""
    pass_all_messages_to_grader: bool = False
    """Tell envs that can (`set_pass_all_messages_to_grader`) to grade the whole conversation."""


@chz.chz
class RolloutConfig:
    """How episodes are played: limits, answers that do not parse, rewards at a limit, tools."""

    limits: RolloutLimits = RolloutLimits()
    parse_errors: ParseErrorPolicy | None = None
    termination: TerminationRewardPolicy | None = None
    tool_execution: Literal["parallel", "sequential"] = "parallel"
    """Whether the tool calls of one answer run side by side; told to envs that can
    (`set_tool_execution`)."""


# ------------------------------------------------------- limits that are reached


def turn_limits(limits: RolloutLimits, state: RolloutState) -> Iterator[StopReason]:
    """Limits on time and turns that leave no further turn."""
    timeout_s, max_turns = limits.rollout_timeout_seconds, limits.max_turns
    if timeout_s is not None and state.elapsed_seconds >= timeout_s:
        yield StopReason.rollout_timeout
    if max_turns is not None and state.turn_index >= max_turns:
        yield StopReason.max_turns


def token_limits(limits: RolloutLimits, state: RolloutState) -> Iterator[StopReason]:
    """Limits on tokens that leave no room for an answer, which needs two: one, and its end."""
    for reason, left in _tokens_left(limits, state):
        if left <= 1:
            yield reason


def turn_budget(
    limits: RolloutLimits, state: RolloutState, lifted: Container[StopReason]
) -> int | None:
    """How many tokens the next answer may have; None where nothing bounds it.

    Args:
        lifted: limits that no longer count.
    """
    bounds = [left for reason, left in _tokens_left(limits, state) if reason not in lifted]
    if limits.max_turn_tokens is not None:
        bounds.append(limits.max_turn_tokens)
    return min(bounds, default=None)


def _tokens_left(limits: RolloutLimits, state: RolloutState) -> Iterator[tuple[StopReason, int]]:
    if limits.max_trajectory_tokens is not None:
        yield StopReason.max_tokens, limits.max_trajectory_tokens - state.observation_tokens
    if limits.max_sampled_tokens is not None:
        yield StopReason.max_sampled_tokens, limits.max_sampled_tokens - state.sampled_tokens
