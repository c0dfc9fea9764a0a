"""What can spoil an episode, read off its record."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from mint.recipe.rl.types import (
    ADAPTER_ERROR_METRIC_KEY,
    ADAPTER_TIMEOUT_METRIC_KEY,
    STOP_METRIC_PREFIX,
    StopReason,
    Trajectory,
    Transition,
)

_TOKEN_LIMITS = {StopReason.max_tokens, StopReason.max_sampled_tokens}
_UNGRADED = ("max_tokens_reached", "parse_error")
"""Metrics of turns that were settled before the environment's own step was called."""
_ADDED_BY_CLAMP = {"zero_reward_on_limit"}
"""Metrics of a group that no grader gave."""


class Blemish(StrEnum):
    """One way in which an episode went wrong. It may have several."""

    no_room = "no_room"
    """Its prompt left no room for an answer: nothing was sampled."""
    cut = "cut"
    """Its last answer was cut off at a number of tokens."""
    cut_at_max_tokens = "cut_at_max_tokens"
    """That number was the run's own `max_tokens`."""
    parse_error = "parse_error"
    """An answer could not be parsed."""
    over_context = "over_context"
    """Its conversation outgrew the context."""
    timed_out = "timed_out"
    scored_too_late = "scored_too_late"
    """Its grader ran out of time: the reward is the one for this case."""
    scoring_failed = "scoring_failed"
    """Its grader failed: the reward is the one for this case."""
    never_graded = "never_graded"
    """The environment never saw an answer and no grader spoke: its reward says nothing about it."""


def blemishes_of(
    episode: Trajectory, final_reward: float, graded: Mapping[str, float], max_tokens: int
) -> set[Blemish]:
    """All that went wrong with an episode.

    Args:
        final_reward, graded: what the group's grader gave it: reward and metrics.
        max_tokens: of one sampling call.
    """
    turns = episode.transitions
    reasons = stop_reasons(turns)
    answered = any(turn.ac.tokens for turn in turns)
    found = {
        Blemish.no_room: not answered and (_is_cut(turns) or bool(_TOKEN_LIMITS & reasons)),
        Blemish.cut: answered and (_is_cut(turns) or bool(_TOKEN_LIMITS & reasons)),
        Blemish.cut_at_max_tokens: _is_cut(turns) and len(turns[-1].ac.tokens) >= max_tokens,
        Blemish.parse_error: any(turn.metrics.get("parse_error") for turn in turns),
        Blemish.over_context: StopReason.context_overflow in reasons,
        Blemish.timed_out: StopReason.rollout_timeout in reasons,
        Blemish.scored_too_late: bool(graded.get(ADAPTER_TIMEOUT_METRIC_KEY)),
        Blemish.scoring_failed: bool(graded.get(ADAPTER_ERROR_METRIC_KEY)),
        Blemish.never_graded: all(map(_is_ungraded, turns))
        and final_reward == 0
        and graded.keys() <= _ADDED_BY_CLAMP,
    }
    return {blemish for blemish, is_there in found.items() if is_there}


def stop_reasons(turns: Iterable[Transition]) -> set[str]:
    """Why an episode of these turns ended, as its metrics say."""
    return {
        name.removeprefix(STOP_METRIC_PREFIX)
        for turn in turns
        for name, value in turn.metrics.items()
        if value and name.startswith(STOP_METRIC_PREFIX)
    }


def _is_cut(turns: list[Transition]) -> bool:
    return bool(turns) and turns[-1].ac.stop_reason == "length"


def _is_ungraded(turn: Transition) -> bool:
    return not turn.ac.tokens or any(turn.metrics.get(name) for name in _UNGRADED)
