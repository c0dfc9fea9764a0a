"""The short way into reinforcement learning: a reward is one class.

Names load when first used, so that `import mint.rl_core` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mint.rl_core.adapter import RLAdapter as RLAdapter
    from mint.rl_core.context import ScoringContext as ScoringContext
    from mint.rl_core.model_info import ModelInfo as ModelInfo
    from mint.rl_core.reward import FailedReward as FailedReward
    from mint.rl_core.reward import Reward as Reward

_NAMES = {
    "FailedReward": "reward",
    "ModelInfo": "model_info",
    "RLAdapter": "adapter",
    "Reward": "reward",
    "ScoringContext": "context",
}
"""Name -> the module of this package that has it."""


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    globals()[name] = value  # found once: the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
