"""The short way into reinforcement learning: a reward is one class.

Names load when first used, so that `import mint.rl_core` costs nothing.
"""

from typing import TYPE_CHECKING

from mint.recipe.late import late_names

if TYPE_CHECKING:
    from mint.rl_core.adapter import RLAdapter as RLAdapter
    from mint.rl_core.config import RLConfig as RLConfig
    from mint.rl_core.context import ScoringContext as ScoringContext
    from mint.rl_core.datasets import AdapterDatasetBuilder as AdapterDatasetBuilder
    from mint.rl_core.environment import AdapterEnv as AdapterEnv
    from mint.rl_core.environment import AdapterGroupBuilder as AdapterGroupBuilder
    from mint.rl_core.grpo import run_grpo as run_grpo
    from mint.rl_core.grpo import run_grpo_async as run_grpo_async
    from mint.rl_core.model_info import ModelInfo as ModelInfo
    from mint.rl_core.reward import FailedReward as FailedReward
    from mint.rl_core.reward import Reward as Reward
    from mint.rl_core.training import train_config as train_config

_NAMES = {
    "AdapterDatasetBuilder": "datasets",
    "AdapterEnv": "environment",
    "AdapterGroupBuilder": "environment",
    "FailedReward": "reward",
    "ModelInfo": "model_info",
    "RLAdapter": "adapter",
    "RLConfig": "config",
    "Reward": "reward",
    "ScoringContext": "context",
    "run_grpo": "grpo",
    "run_grpo_async": "grpo",
    "train_config": "training",
}
"""Name -> the module of this package that has it."""

__all__ = sorted(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = late_names(__name__, _NAMES)
