"""Request bodies as JSON has them, for every generation of SDK that sends them.

Three rules hold for all of them: keys we do not know are let pass; null means the same as absent
(old SDKs send explicit nulls, new ones leave them out); an absent key has the SDK's default.
Numbers out of range and contradictions are no business of this file: they are found when a body
becomes a core value, and reach the caller as the failed result of the operation.
"""

from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

SequenceNumber = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
"""Names a request for its retries, in a 64-bit column: beyond it, nothing can be recorded that a
failed result could be read from."""


MAX_CHUNKS = 4096
"""Of one input. Three bytes of JSON can be a chunk, which takes 600 as an object: 16 MB of them
took 3 GB and a minute (measured)."""
MAX_DATUMS = 16_384
"""Of one request: sixteen times what we let a client send."""


class Body(BaseModel):
    """Root of all bodies."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


# ---------------------------------------------------------------- sessions


class CreateSession(Body):
    tags: list[str] = []
    user_metadata: dict[str, Any] = {}
    sdk_version: str = ""
    display_name: str | None = None
    project_id: str | None = None


class Heartbeat(Body):
    session_id: str


class FinishReason(Body):
    type: str = "success"


class FinishSession(Body):
    reason: FinishReason = FinishReason()
    detail: str | None = None


class AssignProject(Body):
    project_id: str


class SearchOwner(Body):
    type: str = "own"
    owner_urns: list[str] = []


class SearchStatus(Body):
    type: str
    reasons: list[str] | None = None


class SearchCursor(Body):
    last_created_at: AwareDatetime
    last_session_id: str


class SearchSessions(Body):
    session_id: str | None = None
    project_ids: list[str] | None = None
    user_metadata: dict[str, str] = {}
    display_name: str | None = None
    owner: SearchOwner = SearchOwner()
    statuses: list[SearchStatus] | None = None
    limit: int = Field(default=50, ge=1, le=200)
    cursor: SearchCursor | None = None


# ------------------------------------------------------------------ models


class LoraConfig(Body):
    rank: int = 32
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class OptimizerConfig(Body):
    type: str = "adamw"


class CreateModel(Body):
    session_id: str
    model_seq_id: SequenceNumber
    base_model: str
    lora_config: LoraConfig = LoraConfig()
    user_metadata: dict[str, Any] = {}
    optimizer_config: OptimizerConfig = OptimizerConfig()


class ModelOnly(Body):
    """`get_info` and `unload_model`."""

    model_id: str


# ---------------------------------------------------------------- training


class TensorBody(Body):
    """Flat numbers, row after row; sparse (CSR) when the two index lists are there."""

    data: list[Any]
    """Left to numpy: one Python validation per number would cost more than the training step."""
    dtype: str
    shape: list[int] | None = None
    sparse_crow_indices: list[int] | None = None
    sparse_col_indices: list[int] | None = None


class ChunkBody(Body):
    """One piece of an input. SDKs up to 0.16 send no `type`: the keys tell."""

    type: str | None = None
    tokens: list[Any] | None = None
    data: str | None = None
    location: str | None = None
    dmel: str | None = None


class ModelInputBody(Body):
    chunks: list[ChunkBody] = Field(default=[], max_length=MAX_CHUNKS)


class DatumBody(Body):
    model_input: ModelInputBody
    loss_fn_inputs: dict[str, TensorBody] = {}


class ForwardBackwardInput(Body):
    data: list[DatumBody] = Field(max_length=MAX_DATUMS)
    loss_fn: str
    loss_fn_config: dict[str, float | str] = {}


class ForwardBackward(Body):
    """JSON form, of SDKs up to 0.24. Forward-only ones carry `forward_input` instead."""

    model_id: str
    seq_id: SequenceNumber | None = None
    forward_backward_input: ForwardBackwardInput | None = None
    forward_input: ForwardBackwardInput | None = None


class AdamBody(Body):
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


class OptimStep(Body):
    model_id: str
    seq_id: SequenceNumber | None = None
    adam_params: AdamBody = AdamBody()
    optimizer_params: OptimizerConfig | None = None
    """Other optimizers than Adam come under this key (from 0.30)."""


class ReverseKLDatumBody(Body):
    student_input: ModelInputBody
    reference_input: ModelInputBody
    target_tokens: TensorBody
    weights: TensorBody | None = None


class ReverseKL(Body):
    """Ours, as the next one."""

    model_id: str
    seq_id: SequenceNumber | None = None
    reference_model_path: str
    data: list[ReverseKLDatumBody] = Field(max_length=MAX_DATUMS)
    temperature: float = 1.0


class InterpolateCheckpoints(Body):
    source_paths: list[str] = Field(max_length=MAX_CHUNKS)
    coefficients: list[float] = Field(max_length=MAX_CHUNKS)
    output_path: str | None = None
    """The checkpoint's name, not yet a path."""


# ----------------------------------------------------------------- weights


class SaveWeights(Body):
    model_id: str
    path: str | None = None
    """The checkpoint's name, not yet a path."""
    seq_id: SequenceNumber | None = None
    ttl_seconds: int | None = None
    overwrite: bool = False
    user_metadata: dict[str, Any] = {}


class SaveWeightsForSampler(SaveWeights):
    sampling_session_seq_id: SequenceNumber | None = None
    kind: str = "snapshot"


class SaveWeightsExternal(SaveWeights):
    age_encryption_recipients: list[str] = []


class LoadWeights(Body):
    """Into a model (`model_id`, `seq_id`), or making one (`session_id`, `model_seq_id`)."""

    path: str
    optimizer: bool = False
    weights_access_token: str | None = None
    model_id: str | None = None
    seq_id: SequenceNumber | None = None
    session_id: str | None = None
    model_seq_id: SequenceNumber | None = None
    base_model: str | None = None
    user_metadata: dict[str, Any] = {}
    optimizer_config: OptimizerConfig = OptimizerConfig()


class WeightsInfo(Body):
    tinker_path: str


class CopyWeights(Body):
    """Into a project, or into a run of a session."""

    source_path: str
    ttl_seconds: int | None = None
    destination_project_id: str | None = None
    session_id: str | None = None
    model_seq_id: SequenceNumber | None = None
    weights_access_token: str | None = None


class SetTtl(Body):
    ttl_seconds: int | None = None
    """None: it has no end any more."""


# ---------------------------------------------------------------- sampling


class CreateSamplingSession(Body):
    session_id: str
    sampling_session_seq_id: SequenceNumber
    base_model: str | None = None
    model_path: str | None = None


class SamplingParamsBody(Body):
    max_tokens: int | None = None
    seed: int | None = None
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    stop: str | list[Any] | None = None
    stop_token_ids: list[Any] = []
    """Ours: ids that end a sequence besides whatever `stop` says."""


class Sample(Body):
    sampling_session_id: str
    seq_id: SequenceNumber | None = None
    prompt: ModelInputBody
    num_samples: int = 1
    sampling_params: SamplingParamsBody = Field(default_factory=SamplingParamsBody)
    prompt_logprobs: bool = False
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    target_prompt_logprobs: TensorBody | None = None
    prompt_alt_tokens_k: int = 0
    prompt_logprobs_last_n: int | None = None


class JoinSamplingSession(Body):
    sampling_session_id: str


# ----------------------------------------------------------------- futures


class RetrieveFuture(Body):
    request_id: str


CancelFuture = RetrieveFuture
