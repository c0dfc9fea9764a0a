"""A row has every number that the documentation names, under whichever schedule."""

from pathlib import Path
from typing import Any

import pytest
from tests.recipe.fake_service import FakeService
from tests.recipe.rl.guessing import Data, GuessGroup, alternating, guesses, rows, run

from mint.recipe.rl.config import AsyncConfig, KLReferenceConfig, StreamMinibatchConfig

EPISODES = """
    reward/total ac_tokens_per_turn ob_tokens_per_turn turns_per_episode total_episodes total_turns
    total_ac_tokens total_ob_tokens total_cached_ob_tokens by_group/frac_mixed
    by_group/frac_all_good by_group/frac_all_bad
"""
ROW = """
    step progress/batch progress/done_frac optim/lr optim/skipped_step env/all/datums_per_episode
    batch/groups_requested batch/groups_completed batch/groups_failed batch/groups_kept
    optim/kl_sample_train_v1 optim/kl_sample_train_v2 optim/entropy kl_policy_base kl_pre_post_v1
    kl_pre_post_v2 rollout_errors/total rollout_errors/groups_skipped time/total
"""
TOKENS = [
    f"tokens/{scope}{kind}"
    for scope in ("", "cumulative/", "discarded/")
    for kind in ("sampled", "prefill_cached", "prefill_uncached", "trained")
]
SPANS = """
    env_initial_observation policy_sample env_step compute_group_rewards assemble_training_data
    compute_kl_penalty train save_checkpoint run_evals
"""
OVERLAPPING = [
    f"{key}_{end}"
    for key in ("sampling_client/step", "time/sampling_time")
    for end in ("max", "min", "mean")
]
ASYNCHRONOUS = """
    async/staleness_max async/staleness_min async/staleness_mean training_client/step
    eval/snapshot/step eval/by_step/test/env/all/reward/total eval/timing/seconds
"""


@pytest.mark.parametrize(
    ("schedule", "more"),
    [
        ({}, []),
        (
            {
                "stream_minibatch_config": StreamMinibatchConfig(
                    groups_per_batch=2, num_minibatches=2
                )
            },
            OVERLAPPING,
        ),
        (
            {"async_config": AsyncConfig(max_steps_off_policy=0, groups_per_batch=2)},
            [*OVERLAPPING, *ASYNCHRONOUS.split()],
        ),
    ],
    ids=["synchronous", "streaming", "asynchronous"],
)
def test_every_number_is_there_under_every_schedule(
    tmp_path: Path, schedule: dict[str, Any], more: list[str]
):
    batches = [[GuessGroup(2 * b, tag="a"), GuessGroup(2 * b + 1, tag="b")] for b in range(2)]
    fields: dict[str, Any] = {
        "dataset_builder": Data(batches=batches, test=guesses(1)),
        "eval_every": 1,
        "save_every": 1,
        "kl_penalty_coef": 0.1,
        "kl_discount_factor": 0.5,
        "kl_reference_config": KLReferenceConfig(base_model="test/tiny"),
        "compute_post_kl": True,
        "rollout_error_tolerance": True,
    }
    run(tmp_path, FakeService(alternating()), None, **fields, **schedule)

    found = {key for row in rows(tmp_path) for key in row}
    prefixes = ("env/all", "env/a", "env/b", "test/env/all")
    named = [*ROW.split(), *TOKENS, *more]
    named += [f"{at}/{name}" for at in prefixes for name in EPISODES.split()]
    assert [key for key in named if key not in found] == []
    spans = {key.partition(":")[0] for key in found}
    assert [name for name in SPANS.split() if f"time/{name}" not in spans] == []
