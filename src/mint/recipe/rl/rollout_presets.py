"""Two ways to play that need no further thought."""

from mint.recipe.rl.rollout_limits import (
    ParseErrorPolicy,
    RolloutConfig,
    RolloutLimits,
    TerminationRewardPolicy,
)


def simple() -> RolloutConfig:
    """Everything off: the env alone decides when an episode ends."""
    return RolloutConfig()


def agentic() -> RolloutConfig:
    """For agents with tools, which otherwise talk until the context is full.

    10 turns, 65,536 tokens of context, 30 tool calls one after the other, 2 tries again when an
    answer does not parse, 15 minutes; an episode that a limit ends earns nothing.
    """
    return RolloutConfig(
        limits=RolloutLimits(
            max_turns=10,
            max_trajectory_tokens=65_536,
            max_tool_calls=30,
            rollout_timeout_seconds=900.0,
        ),
        parse_errors=ParseErrorPolicy(max_consecutive=2),
        termination=TerminationRewardPolicy(zero_reward_on_limit=True),
        tool_execution="sequential",
    )
