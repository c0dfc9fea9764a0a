"""One sentence for each reason why a step could not learn: what was seen, then what to do."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mint.recipe.rl.step_health import Cause, StepHealth

GOOD_REWARD = 0.5
"""A group whose members all got this much or more counts as solved."""
LONGER_OR_SHORTER = "raise max_tokens or use a non-thinking renderer"

FASTER = "raise the adapter's timeout_s, or make its scoring faster"
WHICH_ERROR = "the log `error` of each such episode, in iteration_*/, names what failed"


def advice_for(cause: "Cause", health: "StepHealth") -> str:
    """The sentence, without its beginning."""
    return _SENTENCES[cause](health)


def _loss_not_finite(health: "StepHealth") -> str:
    return (
        "the loss or a logprob in training is not a finite number, so the weights may be spoilt: go "
        "back to an earlier checkpoint with a lower learning_rate."
    )


def _no_groups(health: "StepHealth") -> str:
    if health.groups_failed:
        return (
            f"all rollouts failed ({health.groups_failed} groups), so there was nothing to train on: "
            "see the errors in the log and under rollout_errors/."
        )
    return "the batch had no groups: see the data set's get_batch."


def _group_of_one(health: "StepHealth") -> str:
    return (
        "every group has one member, and an advantage is the reward less the group's mean, so it is "
        "always 0: use a group size of 2 or more."
    )


def _no_room(health: "StepHealth") -> str:
    return (
        f"no prompt left room for an answer ({_all(health)}), so nothing was sampled: raise "
        "max_trajectory_tokens, or lower max_generation_tokens or the length of prompts."
    )


def _cut(health: "StepHealth") -> str:
    if health.cut_at_max_tokens == health.episodes:
        limit, remedy = f"hit max_tokens={health.max_tokens}", LONGER_OR_SHORTER
    elif health.cut_at_max_tokens:
        limit = f"hit max_tokens={health.max_tokens} or another limit of tokens"
        remedy = f"{LONGER_OR_SHORTER}; see the run's and the env's other limits too"
    else:
        limit = (
            f"hit a limit of tokens below max_tokens={health.max_tokens} (longest answer "
            f"{health.longest_answer})"
        )
        remedy = (
            "raise max_trajectory_tokens, max_sampled_tokens or max_turn_tokens, or use a "
            "non-thinking renderer"
        )
    return f"all episodes {limit} ({_all(health)}){_consequence(health)}: {remedy}."


def _parse_errors(health: "StepHealth") -> str:
    return (
        f"no answer could be parsed ({_all(health)}){_consequence(health)}: use the renderer that the "
        "model was trained with, and check that its stop sequences end the answer."
    )


def _timed_out(health: "StepHealth") -> str:
    return (
        f"all episodes ran out of time ({_all(health)}){_consequence(health)}: raise "
        "rollout_timeout_seconds, or let fewer rollouts run at once."
    )


def _over_context(health: "StepHealth") -> str:
    return (
        f"all episodes outgrew their context ({_all(health)}), and the overflow reward took the place "
        "of the env's: raise max_trajectory_tokens, or let episodes end earlier."
    )


def _scored_too_late(health: "StepHealth") -> str:
    return f"no answer was scored in time ({_all(health)}), so every reward is timeout_score: {FASTER}."


def _scoring_failed(health: "StepHealth") -> str:
    return f"no answer could be scored ({_all(health)}), so every reward is error_score: {WHICH_ERROR}."


def _never_graded(health: "StepHealth") -> str:
    return (
        f"the environment was never called ({_all(health)}; {_blemishes(health)}), so no reward was "
        f"computed: {LONGER_OR_SHORTER} for answers that are cut, and one that fits the model for "
        "those that do not parse."
    )


def _equal_rewards(health: "StepHealth") -> str:
    seen = f"in each of {health.groups} groups all rewards are equal"
    if health.reward_lowest == health.reward_highest:
        seen = f"every episode got the reward {health.reward_lowest:g} ({_all(health)})"
    if 2 * health.unscored >= health.episodes:
        return f"{seen}, and {health.unscored} were not scored: {FASTER}; {WHICH_ERROR}."
    if health.reward_lowest >= GOOD_REWARD:
        return f"{seen}, which is a good one: give harder problems, or stop here."
    if 2 * health.cut >= health.episodes:
        return (
            f"{seen}, and {health.cut} hit a limit of tokens (max_tokens={health.max_tokens}): "
            f"{LONGER_OR_SHORTER}."
        )
    if 2 * health.parse_errors >= health.episodes:
        return f"{seen}, and {health.parse_errors} could not be parsed: check the renderer."
    return f"{seen}: give easier problems, a finer reward, larger groups or a higher temperature."


def _no_signal(health: "StepHealth") -> str:
    if not health.datums:
        return "rewards differ, but there is no datum: the episodes that differ have no sampled tokens."
    return (
        f"rewards differ, but none of {health.datums} datums has an advantage on a sampled token: "
        "turns may all be masked for parse errors, or groups that differ may have lost their tokens."
    )


def _all(health: "StepHealth") -> str:
    return f"{health.episodes} of {health.episodes}"


def _consequence(health: "StepHealth") -> str:
    if health.never_graded == health.episodes:
        return ", so the environment was never called and no reward was computed"
    return ", and their rewards are equal"


def _blemishes(health: "StepHealth") -> str:
    counts = {
        "cut by length": health.cut,
        "not parsed": health.parse_errors,
        "without room": health.no_room,
        "out of time": health.timed_out,
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


_SENTENCES = {
    "loss_not_finite": _loss_not_finite,
    "no_groups": _no_groups,
    "group_of_one": _group_of_one,
    "no_room": _no_room,
    "cut": _cut,
    "parse_errors": _parse_errors,
    "timed_out": _timed_out,
    "over_context": _over_context,
    "scored_too_late": _scored_too_late,
    "scoring_failed": _scoring_failed,
    "never_graded": _never_graded,
    "equal_rewards": _equal_rewards,
    "no_signal": _no_signal,
}
