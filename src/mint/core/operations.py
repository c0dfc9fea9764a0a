"""The closed set of operations an engine is asked for, and what each returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mint.core.datum import Datum, ReverseKLDatum
from mint.core.errors import Fault
from mint.core.ids import ModelId, SamplerId
from mint.core.lora import LoraSpec
from mint.core.model_input import ModelInput
from mint.core.optim import AdamParams
from mint.core.sampling import AltTokens, Cells, SampledSequence, SamplingParams, TopK

# -------------------------------------------------------------- asked for


@dataclass(frozen=True, kw_only=True)
class CreateModel:
    """Make a new adapter on a base model."""

    model_id: ModelId
    base_model: str
    lora: LoraSpec


@dataclass(frozen=True, kw_only=True)
class CreateModelFrom:
    """Make a new adapter from a checkpoint: base model and shape are the checkpoint's."""

    model_id: ModelId
    path: str
    with_optimizer: bool


@dataclass(frozen=True, kw_only=True)
class ImportAdapter:
    """Turn an uploaded PEFT folder into a checkpoint, under a run of its own that never lives."""

    model_id: ModelId
    base_model: str
    path: str
    """The checkpoint's own path. Of the kind `weights` if the upload brings optimizer state."""
    upload: str
    """Name of the folder with the files as they came. It is used up, whatever comes of it."""


@dataclass(frozen=True, kw_only=True)
class InterpolateCheckpoints:
    """Write the weighted sum of checkpoints as one, under a run of its own that never lives.

    What each adds to a weight of the base model is summed, c_1 dW_1 + c_2 dW_2 + …, whatever ranks,
    alphas and linears they have.
    """

    model_id: ModelId
    base_model: str
    path: str
    """The new checkpoint's own path, of the kind `sampler_weights`."""
    source_paths: tuple[str, ...]
    coefficients: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardBackward:
    """Compute a loss over data; unless `forward_only`, add its gradient to the adapter's."""

    model_id: ModelId
    data: tuple[Datum, ...]
    loss_fn: str
    loss_fn_config: Mapping[str, float | str] = field(default_factory=dict)
    forward_only: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class ReverseKL:
    """Add the gradient of a reverse KL to the adapter's: sum of weight * KL(student || reference),
    over the whole vocabulary, at `temperature`. The student is the model; the reference is fixed.
    """

    model_id: ModelId
    data: tuple[ReverseKLDatum, ...]
    reference_base: str
    """The reference's base model."""
    reference_weights: str | None
    """None: the base model as it is. Else a checkpoint's path."""
    temperature: float = 1.0


@dataclass(frozen=True, kw_only=True)
class OptimStep:
    """Apply the gathered gradient with Adam and clear it: weights_version + 1."""

    model_id: ModelId
    params: AdamParams


@dataclass(frozen=True, kw_only=True)
class DiscardGradients:
    """Clear the gathered gradient without a step, in place of an OptimStep that may not happen:
    a pass since the last step failed, so the sum is incomplete. Its outcome is that refusal."""

    model_id: ModelId
    reason: str


@dataclass(frozen=True, kw_only=True)
class SaveWeights:
    """Write a checkpoint: with optimizer state (`weights/`) or without (the other kinds)."""

    model_id: ModelId
    path: str
    """The checkpoint's own path, tinker://<model_id>/<kind>/<name>."""
    overwrite: bool = False
    ttl_seconds: int | None = None
    user_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class LoadWeights:
    """Replace the adapter's weights by a checkpoint's; clears gathered gradients."""

    model_id: ModelId
    path: str
    with_optimizer: bool


@dataclass(frozen=True, kw_only=True)
class PinSampler:
    """Give the model's present weights to a sampling session, for good."""

    model_id: ModelId
    sampler_id: SamplerId


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Draw continuations of one prompt from a sampling session's weights."""

    sampler_id: SamplerId
    base_model: str
    weights: str | None
    """None: the base model. A checkpoint path, or the sampler_id of pinned weights."""
    prompt: ModelInput
    num_samples: int = 1
    params: SamplingParams = SamplingParams()
    prompt_logprobs: bool = False
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    prompt_logprobs_last_n: int | None = None
    """Score only so many of the prompt's last tokens; None: all but the first."""
    prompt_targets: Cells | None = None
    """Ids to score at positions of the prompt, whatever is there: int32, row i for position i + 1;
    -1 asks for nothing."""
    prompt_alt_tokens_k: int = 0
    """Tokens to draw in place of each prompt token but the first."""


@dataclass(frozen=True, kw_only=True)
class ResolveModel:
    """Find a base model by name, so that it is among those served. Weights are not loaded yet."""

    base_model: str


@dataclass(frozen=True, kw_only=True)
class UnloadModel:
    """Forget a model: its adapter, gradients and optimizer state leave memory."""

    model_id: ModelId


@dataclass(frozen=True, kw_only=True)
class ReleaseSampler:
    """Forget the weights pinned for a sampling session."""

    sampler_id: SamplerId


ModelOperation = (
    CreateModel | CreateModelFrom | ImportAdapter | InterpolateCheckpoints | ForwardBackward
    | ReverseKL | OptimStep | DiscardGradients | SaveWeights | LoadWeights | PinSampler | UnloadModel
)  # fmt: skip
"""Operations of one training model: done one after the other, in order of arrival."""

BEGINNINGS = ("CreateModel", "CreateModelFrom", "ImportAdapter", "InterpolateCheckpoints")
"""Kinds a model's life begins with: nothing is lost when they wait, and without them it failed."""

PASSES = ("ForwardBackward", "ReverseKL")
"""Kinds that add to a model's gradient, in any order."""

Operation = ModelOperation | Sample | ReleaseSampler | ResolveModel


# --------------------------------------------------------------- returned


@dataclass(frozen=True)
class Done:
    """Nothing to report besides success."""


@dataclass(frozen=True, kw_only=True)
class ModelReady:
    """An adapter exists now."""

    base_model: str
    lora: LoraSpec


@dataclass(frozen=True, kw_only=True, eq=False)
class PassResult:
    """What a ForwardBackward computed.

    Attributes:
        logprobs: per datum float32, shaped like its target_tokens, nats, at the loss's
            temperature; for every position, weight 0 included.
        metrics: names are "name:reduction" with exactly one colon; "loss:sum" is always there.
    """

    logprobs: tuple[NDArray[np.float32], ...]
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReverseKLResult(PassResult):
    """What a ReverseKL computed; `logprobs` are the student's.

    Attributes:
        reverse_kl: per datum float32 `[n]`, KL(student || reference) in nats at each position,
            weight 0 included. Rounding may leave 1e-6 below 0 where both agree.
    """

    reverse_kl: tuple[NDArray[np.float32], ...]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    metrics: Mapping[str, float]
    weights_version: int


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint's files are on disk, whole.

    `files` maps each file name to (size in bytes, sha256 in hex).
    """

    files: Mapping[str, tuple[int, str]]
    weights_version: int
    path: str = ""
    """The path that was asked for: with the operation's row ended, its result alone remembers."""

    @property
    def size_bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


@dataclass(frozen=True, kw_only=True)
class Imported:
    """An uploaded adapter is a checkpoint now."""

    files: Mapping[str, tuple[int, str]]
    """As in Saved."""
    lora: LoraSpec
    path: str

    @property
    def size_bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


@dataclass(frozen=True, kw_only=True)
class Interpolated(Imported):
    """A weighted sum of checkpoints is a checkpoint now."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleResult:
    """What a Sample drew.

    Attributes:
        sequences: `num_samples` of them, in order.
        prompt_logprobs: float32, one per prompt token, the first NaN; like all returned logprobs
            at the request's temperature (at 1 for temperature 0).
        topk_prompt_logprobs: one row per prompt token, the first unscored.
        target_prompt_logprobs: of the ids asked for, in the same cells; 0 for those of -1.
        prompt_alt_tokens: what was drawn in place of the prompt's tokens.
        weights_version: of the adapter; 0 for the base model.
    """

    sequences: tuple[SampledSequence, ...]
    prompt_logprobs: NDArray[np.float32] | None = None
    topk_prompt_logprobs: TopK | None = None
    target_prompt_logprobs: Cells | None = None
    prompt_alt_tokens: AltTokens | None = None
    weights_version: int = 0


Result = (
    Done | ModelReady | PassResult | ReverseKLResult | StepResult | Saved | Imported | Interpolated
    | SampleResult
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """Why an operation has no result, in words for the user, and whose move is next."""

    message: str
    fault: Fault
