"""Tokens are counted once, by what was done with them."""

from tests.recipe.rl.episodes import episode, group, turn

from mint.recipe.rl.data_processing import trajectory_to_data
from mint.recipe.rl.token_usage import TokenUsage, rollout_usage, trained_usage


def test_usages_add_up_and_are_metrics():
    both = TokenUsage(sampled=1, prefill_cached=2) + TokenUsage(prefill_uncached=3, trained=4)

    assert both == TokenUsage(1, 2, 3, 4)
    assert both.metrics("tokens/cumulative/") == {
        "tokens/cumulative/sampled": 1,
        "tokens/cumulative/prefill_cached": 2,
        "tokens/cumulative/prefill_uncached": 3,
        "tokens/cumulative/trained": 4,
    }


def test_a_rollout_reads_each_turns_prompt_and_a_pass_reads_each_datum_once():
    played = episode(turn([1, 2, 3], [4, 5]), turn([1, 2, 3, 4, 5, 6], [7], cached=4))

    assert rollout_usage([group(played)]) == TokenUsage(
        sampled=3, prefill_cached=4, prefill_uncached=5
    )
    assert trained_usage(trajectory_to_data(played, 1.0)) == TokenUsage(trained=6)
