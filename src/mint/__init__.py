"""MinT: post-training you own.

Everything of the official `tinker` package under the same names, with clients of our own on top, so
`import mint as tinker` moves a script over. Names load when first used: `import mint` alone imports
no package but the standard library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinker import (
        AdamOptimizerConfig as AdamOptimizerConfig,
    )
    from tinker import (
        AdamParams as AdamParams,
    )
    from tinker import (
        APIConnectionError as APIConnectionError,
    )
    from tinker import (
        APIError as APIError,
    )
    from tinker import (
        APIFuture as APIFuture,
    )
    from tinker import (
        APIResponseValidationError as APIResponseValidationError,
    )
    from tinker import (
        APIStatusError as APIStatusError,
    )
    from tinker import (
        APITimeoutError as APITimeoutError,
    )
    from tinker import (
        AuthenticationError as AuthenticationError,
    )
    from tinker import (
        BackcompatSamplingClientFuture as BackcompatSamplingClientFuture,
    )
    from tinker import (
        BackcompatTrainingClientFuture as BackcompatTrainingClientFuture,
    )
    from tinker import (
        BadRequestError as BadRequestError,
    )
    from tinker import (
        BillingError as BillingError,
    )
    from tinker import (
        Checkpoint as Checkpoint,
    )
    from tinker import (
        CheckpointType as CheckpointType,
    )
    from tinker import (
        ConflictError as ConflictError,
    )
    from tinker import (
        Datum as Datum,
    )
    from tinker import (
        DimuonOptimizerConfig as DimuonOptimizerConfig,
    )
    from tinker import (
        DimuonParams as DimuonParams,
    )
    from tinker import (
        DmelChunk as DmelChunk,
    )
    from tinker import (
        EncodedTextChunk as EncodedTextChunk,
    )
    from tinker import (
        ExperimentalWarning as ExperimentalWarning,
    )
    from tinker import (
        ForwardBackwardOutput as ForwardBackwardOutput,
    )
    from tinker import (
        InternalServerError as InternalServerError,
    )
    from tinker import (
        LoraConfig as LoraConfig,
    )
    from tinker import (
        LossHandle as LossHandle,
    )
    from tinker import (
        ModelID as ModelID,
    )
    from tinker import (
        ModelInput as ModelInput,
    )
    from tinker import (
        ModelInputChunk as ModelInputChunk,
    )
    from tinker import (
        NotFoundError as NotFoundError,
    )
    from tinker import (
        OptimParams as OptimParams,
    )
    from tinker import (
        OptimStepRequest as OptimStepRequest,
    )
    from tinker import (
        OptimStepResponse as OptimStepResponse,
    )
    from tinker import (
        ParsedCheckpointTinkerPath as ParsedCheckpointTinkerPath,
    )
    from tinker import (
        PerDatumLossFn as PerDatumLossFn,
    )
    from tinker import (
        PermissionDeniedError as PermissionDeniedError,
    )
    from tinker import (
        PromptProvenanceSpan as PromptProvenanceSpan,
    )
    from tinker import (
        RateLimitError as RateLimitError,
    )
    from tinker import (
        RequestFailedError as RequestFailedError,
    )
    from tinker import (
        RequestOptions as RequestOptions,
    )
    from tinker import (
        SampledProvenanceSpan as SampledProvenanceSpan,
    )
    from tinker import (
        SampledSequence as SampledSequence,
    )
    from tinker import (
        SampleRequest as SampleRequest,
    )
    from tinker import (
        SampleResponse as SampleResponse,
    )
    from tinker import (
        StopReason as StopReason,
    )
    from tinker import (
        TensorData as TensorData,
    )
    from tinker import (
        TensorDtype as TensorDtype,
    )
    from tinker import (
        Timeout as Timeout,
    )
    from tinker import (
        TinkerError as TinkerError,
    )
    from tinker import (
        TrainingRun as TrainingRun,
    )
    from tinker import (
        UnprocessableEntityError as UnprocessableEntityError,
    )
    from tinker import (
        __title__,
    )
    from tinker import (
        auth as auth,
    )

    from mint import types as types
    from mint.client.compat import AdminClient as AdminClient
    from mint.client.compat import RestClient as RestClient
    from mint.client.compat import SamplingClient as SamplingClient
    from mint.client.compat import ServiceClient as ServiceClient
    from mint.client.compat import TrainingClient as TrainingClient
    from mint.core.errors import ConfigError as ConfigError
    from mint.core.errors import MintError as MintError
    from mint.types import SamplingParams as SamplingParams

    __version__: str

_OURS = {
    "AdminClient": "mint.client.compat",
    "RestClient": "mint.client.compat",
    "SamplingClient": "mint.client.compat",
    "ServiceClient": "mint.client.compat",
    "TrainingClient": "mint.client.compat",
    "SamplingParams": "mint.types",
    "ConfigError": "mint.core.errors",
    "MintError": "mint.core.errors",
}
"""Names that are not upstream's, or replace it."""

_ROOMS = ("completers", "recipe", "renderers", "rl_core")
"""Modules of ours that `import mint` alone makes reachable."""

__all__ = [  # upstream's, and ours
    "APIConnectionError",
    "APIError",
    "APIFuture",
    "APIResponseValidationError",
    "APIStatusError",
    "APITimeoutError",
    "AdamOptimizerConfig",
    "AdamParams",
    "AdminClient",
    "AuthenticationError",
    "BackcompatSamplingClientFuture",
    "BackcompatTrainingClientFuture",
    "BadRequestError",
    "BillingError",
    "Checkpoint",
    "CheckpointType",
    "ConfigError",
    "ConflictError",
    "Datum",
    "DimuonOptimizerConfig",
    "DimuonParams",
    "DmelChunk",
    "EncodedTextChunk",
    "ExperimentalWarning",
    "ForwardBackwardOutput",
    "InternalServerError",
    "LoraConfig",
    "LossHandle",
    "MintError",
    "ModelID",
    "ModelInput",
    "ModelInputChunk",
    "NotFoundError",
    "OptimParams",
    "OptimStepRequest",
    "OptimStepResponse",
    "ParsedCheckpointTinkerPath",
    "PerDatumLossFn",
    "PermissionDeniedError",
    "PromptProvenanceSpan",
    "RateLimitError",
    "RequestFailedError",
    "RequestOptions",
    "RestClient",
    "SampleRequest",
    "SampleResponse",
    "SampledProvenanceSpan",
    "SampledSequence",
    "SamplingClient",
    "SamplingParams",
    "ServiceClient",
    "StopReason",
    "TensorData",
    "TensorDtype",
    "Timeout",
    "TinkerError",
    "TrainingClient",
    "TrainingRun",
    "UnprocessableEntityError",
    "__title__",
    "__version__",
    "auth",
    "types",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = import_module("importlib.metadata").version("mint-rl")
    elif name == "types":
        value = import_module("mint.types")
    elif name in _ROOMS:
        value = import_module(f"mint.{name}")
    elif name in _OURS:
        value = getattr(import_module(_home(_OURS[name])), name)
    elif name in __all__:
        value = getattr(import_module("tinker"), name)
    else:
        raise AttributeError(f"module 'mint' has no attribute {name!r}")
    globals()[name] = value  # found once: the next look-up does not come here
    return value


def _home(module: str) -> str:
    """The module of our clients for the SDK that is installed; any other stays as it is."""
    if module == "mint.client.compat":
        version = import_module("tinker").__version__.split(".")
        if (int(version[0]), int(version[1])) < (0, 38):
            return "mint.client.older_sdk"
    return module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
