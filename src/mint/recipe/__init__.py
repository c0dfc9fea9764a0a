"""Algorithms over the public API: environments, rollouts, RL training, renderers, evaluators.

Names load when first used, so that `import mint.recipe` costs nothing; `recipe.rl.types` and the
like need no import of their own.
"""

from typing import TYPE_CHECKING

from mint.recipe.late import late_names

if TYPE_CHECKING:
    from mint.recipe import checkpoint_utils as checkpoint_utils
    from mint.recipe import cli_utils as cli_utils
    from mint.recipe import completers as completers
    from mint.recipe import eval as eval
    from mint.recipe import exceptions as exceptions
    from mint.recipe import grading as grading
    from mint.recipe import hyperparam_utils as hyperparam_utils
    from mint.recipe import model_info as model_info
    from mint.recipe import renderers as renderers
    from mint.recipe import rl as rl
    from mint.recipe import sandbox as sandbox
    from mint.recipe import supervised as supervised
    from mint.recipe import sweep as sweep
    from mint.recipe import tokenizer_utils as tokenizer_utils
    from mint.recipe import utils as utils
    from mint.recipe.messages import Message as Message
    from mint.recipe.model_info import (
        get_recommended_renderer_name as get_recommended_renderer_name,
    )
    from mint.recipe.rl.message_env import EnvFromMessageEnv as EnvFromMessageEnv
    from mint.recipe.rl.message_env import MessageEnv as MessageEnv
    from mint.recipe.rl.message_env import MessageStepResult as MessageStepResult
    from mint.recipe.tokenizers import get_tokenizer as get_tokenizer

_NAMES = {
    "EnvFromMessageEnv": "rl.message_env",
    "Message": "messages",
    "MessageEnv": "rl.message_env",
    "MessageStepResult": "rl.message_env",
    "get_recommended_renderer_name": "model_info",
    "get_tokenizer": "tokenizers",
}
"""Name -> the module of this package that has it."""

_MODULES = (
    "checkpoint_utils", "cli_utils", "completers", "eval", "exceptions", "grading",
    "hyperparam_utils", "model_info", "renderers", "rl", "sandbox", "supervised", "sweep",
    "tokenizer_utils", "utils",
)  # fmt: skip

_LATER = ("preference", "distillation")
"""Rooms of the plan that this release does not have."""

__getattr__, __dir__ = late_names(__name__, _NAMES, modules=_MODULES, planned=_LATER)
