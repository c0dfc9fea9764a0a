"""Reinforcement learning: environments, rollouts, groups, and the loops that train on them.

Modules load when first used, so that `mint.recipe.rl.types` is at hand without another import.
"""

from typing import TYPE_CHECKING

from mint.recipe.late import late_names

if TYPE_CHECKING:
    from mint.recipe.rl import config as config
    from mint.recipe.rl import data_processing as data_processing
    from mint.recipe.rl import dataset_utils as dataset_utils
    from mint.recipe.rl import diagnosis as diagnosis
    from mint.recipe.rl import interleaved as interleaved
    from mint.recipe.rl import message_env as message_env
    from mint.recipe.rl import metric_util as metric_util
    from mint.recipe.rl import metrics as metrics
    from mint.recipe.rl import problem_env as problem_env
    from mint.recipe.rl import rollout_limits as rollout_limits
    from mint.recipe.rl import rollout_logging as rollout_logging
    from mint.recipe.rl import rollout_presets as rollout_presets
    from mint.recipe.rl import rollout_runner as rollout_runner
    from mint.recipe.rl import rollout_strategy as rollout_strategy
    from mint.recipe.rl import rollouts as rollouts
    from mint.recipe.rl import train as train
    from mint.recipe.rl import types as types

_MODULES = (
    "config", "data_processing", "dataset_utils", "diagnosis", "interleaved", "message_env",
    "metric_util", "metrics", "problem_env", "rollout_limits", "rollout_logging",
    "rollout_presets", "rollout_runner", "rollout_strategy", "rollouts", "train", "types",
)  # fmt: skip

_LATER = ("preference_envs",)
"""Modules of the plan that this release does not have."""

__getattr__, __dir__ = late_names(__name__, modules=_MODULES, planned=_LATER)
