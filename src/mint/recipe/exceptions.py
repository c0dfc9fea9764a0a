"""What can go wrong in a recipe, and whose move it is: always the reader's of the message.

RecipeError
├── ConfigurationError           a config contradicts itself (ValueError)
├── DataError                    what came out of a dataset, an env or a file (ValueError)
│   ├── DataFormatError          it cannot be read
│   └── DataValidationError      it was read and cannot be right
├── RendererError                messages and tokens do not fit each other (ValueError)
├── TrainingError                a run cannot go on (RuntimeError)
│   ├── CheckpointError          nothing to resume from, or it does not load
│   └── AllTrajectoriesFailedError   too few rollouts of a group are left
├── SandboxError                 a program could not be started; nothing it did (RuntimeError)
└── EvalError                    an evaluator cannot answer (RuntimeError)

SamplingTurnTimeoutError stands outside: to a rollout strategy it is one failed rollout.
Errors of the service pass through as they are.
"""

from mint.core.errors import Fault, MintError


class RecipeError(MintError):
    """Root of the recipes' errors. Each also is the built-in that a caller would expect."""

    fault = Fault.USER


class ConfigurationError(RecipeError, ValueError): ...


class DataError(RecipeError, ValueError): ...


class DataFormatError(DataError): ...


class DataValidationError(DataError): ...


class RendererError(RecipeError, ValueError): ...


class TrainingError(RecipeError, RuntimeError): ...


class CheckpointError(TrainingError): ...


class AllTrajectoriesFailedError(TrainingError): ...


class SandboxError(RecipeError, RuntimeError): ...


class EvalError(RecipeError, RuntimeError): ...


class SamplingTurnTimeoutError(Exception):
    """One sampling call took longer than `sampling_turn_timeout_seconds`.

    No TimeoutError: whoever catches those around a rollout would take it for the rollout's own.
    """


TinkerCookbookError = RecipeError
"""The root's name in code that comes from elsewhere."""
