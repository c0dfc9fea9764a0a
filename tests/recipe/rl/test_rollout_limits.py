"""Limits and policies as values: what they refuse, and what the presets are."""

from typing import Any

import pytest

from mint.recipe.rl.rollout_limits import (
    ParseErrorPolicy,
    RolloutConfig,
    RolloutLimits,
    TerminationRewardPolicy,
)
from mint.recipe.rl.rollout_presets import agentic, simple

NAMES = (
    "max_turns", "max_trajectory_tokens", "max_sampled_tokens", "max_tool_calls",
    "max_turn_tokens", "rollout_timeout_seconds", "sampling_turn_timeout_seconds",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_is_positive(name: str, value: int):
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"RolloutLimits.{name}={value}"):
        RolloutLimits(**settings)


def test_no_limit_is_the_default():
    assert [getattr(RolloutLimits(), name) for name in NAMES] == [None] * len(NAMES)


@pytest.mark.parametrize("settings", [{"max_consecutive": -1}, {"penalty_per_error": -0.5}])
def test_a_policy_for_parse_errors_that_makes_no_sense_is_refused(settings: dict[str, Any]):
    with pytest.raises(ValueError, match="ParseErrorPolicy"):
        ParseErrorPolicy(**settings)


def test_simple_is_everything_off():
    assert simple() == RolloutConfig()
    assert (simple().parse_errors, simple().termination) == (None, None)


def test_agentic_is_what_it_says():
    config = agentic()

    assert config.limits == RolloutLimits(
        max_turns=10, max_trajectory_tokens=65536, max_tool_calls=30, rollout_timeout_seconds=900.0
    )
    assert config.parse_errors is not None
    assert config.parse_errors.max_consecutive == 2
    assert config.termination == TerminationRewardPolicy(zero_reward_on_limit=True)
    assert config.tool_execution == "sequential"
