"""The rows of the store, as frozen values. Times are UTC, zone-aware."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mint.core.errors import Fault
from mint.core.ids import KeyId, ModelId, OperationId, Owner, SamplerId, SessionId
from mint.core.lora import LoraSpec
from mint.core.operations import Failure


@dataclass(frozen=True, kw_only=True)
class Key:
    """An API key, without its secret."""

    key_id: KeyId
    owner: Owner
    name: str
    hint: str
    """The secret's last four characters, to tell keys apart."""
    is_admin: bool
    created_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None
    """To the minute; None: never."""


@dataclass(frozen=True, kw_only=True)
class NewSession:
    owner: Owner
    idempotency_key: str | None
    """Equal over the retries of one call; a repeated one gets the first session back."""
    tags: tuple[str, ...] = ()
    user_metadata: Mapping[str, str] = field(default_factory=dict)
    sdk_version: str = ""
    display_name: str | None = None
    project_id: str | None = None
    """A label to list by; opens and closes nothing."""
    key_id: KeyId | None = None
    """The key it is opened with; what is computed for it counts as that key's usage."""


@dataclass(frozen=True, kw_only=True)
class Session:
    session_id: SessionId
    owner: Owner
    created_at: datetime
    last_seen_at: datetime
    finished_at: datetime | None
    finish_reason: str | None
    """In the client's words; "expired" if it fell silent."""
    finish_detail: str | None
    tags: tuple[str, ...]
    user_metadata: Mapping[str, str]
    sdk_version: str
    display_name: str | None
    project_id: str | None


class ModelState(StrEnum):
    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    """Creation failed; the reason is its operation's."""
    UNLOADED = "unloaded"
    LOST = "lost"
    """The engine died with it; checkpoints of it remain."""


@dataclass(frozen=True, kw_only=True)
class NewModel:
    model_id: ModelId
    session_id: SessionId
    owner: Owner
    base_model: str
    lora: LoraSpec
    user_metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Model:
    model_id: ModelId
    session_id: SessionId
    owner: Owner
    base_model: str
    lora: LoraSpec
    state: ModelState
    weights_version: int
    created_at: datetime
    last_request_at: datetime
    user_metadata: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class NewSampler:
    sampler_id: SamplerId
    session_id: SessionId
    owner: Owner
    base_model: str
    weights: str | None
    """None: the base model. A checkpoint's path, or the sampler_id itself for pinned weights."""
    model_id: ModelId | None = None
    """The model whose weights are pinned."""


@dataclass(frozen=True, kw_only=True)
class Sampler:
    sampler_id: SamplerId
    session_id: SessionId
    owner: Owner
    base_model: str
    weights: str | None
    model_id: ModelId | None


class OperationStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        return self in (OperationStatus.DONE, OperationStatus.FAILED)


@dataclass(frozen=True, kw_only=True)
class NewOperation:
    """One operation to queue. (`scope`, `seq_id`) names it for retries; seq_id None: no retry is
    recognised."""

    owner: Owner
    kind: str
    """Class name in core.operations."""
    payload: bytes
    """wire.payloads.encode(operation)."""
    scope: str
    """What seq_id counts in: a model id, a sampler id, or "<session_id>/create"."""
    seq_id: int | None
    model_id: ModelId | None = None
    sampler_id: SamplerId | None = None
    tokens: int = 0
    """Work it asks for, in tokens: for fairness and for people."""


@dataclass(frozen=True, kw_only=True)
class PendingOperation:
    """A queued operation as the scheduler sees it (no payload)."""

    operation_id: OperationId
    arrival: int
    """Order of arrival, over all models."""
    kind: str
    owner: Owner
    model_id: ModelId | None
    sampler_id: SamplerId | None
    tokens: int


@dataclass(frozen=True, kw_only=True)
class QueueLine:
    """Operations of one kind on one model that wait, or that run."""

    owner: Owner
    model_id: ModelId | None
    kind: str
    status: OperationStatus
    count: int
    oldest_at: datetime


@dataclass(frozen=True)
class OperationCount:
    kind: str
    status: OperationStatus
    count: int


@dataclass(frozen=True, kw_only=True)
class OperationRecord:
    """Where one operation stands; `result` only once it is done."""

    operation_id: OperationId
    kind: str
    owner: Owner
    status: OperationStatus
    model_id: ModelId | None
    sampler_id: SamplerId | None
    created_at: datetime
    finished_at: datetime | None
    result: bytes | None
    """wire.payloads.encode_result(result)."""
    error: str | None
    fault: Fault | None


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    path: str
    """tinker://<model_id>/<kind>/<name>"""
    owner: Owner
    model_id: ModelId
    kind: str
    name: str
    base_model: str
    lora: LoraSpec
    folder: str
    """Below the data folder."""
    size_bytes: int
    created_at: datetime
    expires_at: datetime | None
    is_public: bool
    user_metadata: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class NewCheckpoint:
    """A checkpoint whose files are on disk, whole. It replaces one of the same path."""

    path: str
    owner: Owner
    model_id: ModelId
    kind: str
    name: str
    base_model: str
    lora: LoraSpec
    folder: str
    """Below the data folder."""
    size_bytes: int
    expires_at: datetime | None = None
    user_metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What an operation has computed, in tokens."""

    trained: int = 0
    """Read in passes over data, forward-only ones included."""
    prompt: int = 0
    """Read as the prompt of a sample; once, however many continuations it has."""
    sampled: int = 0


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What was computed for one key within one hour, or over all hours where `hour` is None.

    `key_id` and `base_model` are "" for what cannot be told.
    """

    hour: datetime | None
    owner: Owner
    key_id: str
    base_model: str
    operations: int
    """Ended ones, failed ones included."""
    failed: int
    trained_tokens: int
    prompt_tokens: int
    sampled_tokens: int
    checkpoints: int
    """Saved, whether or not they are still there."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """What an owner's checkpoints take on disk, of one project (None: of no project)."""

    owner: Owner
    project_id: str | None
    checkpoints: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class QueuePlace:
    """How far an operation is from its turn."""

    before: int
    """How many wait that came before it."""
    waiting: int
    """How many wait in all, itself included."""
    ended_lately: int
    """How many ended within the time that was asked about."""


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What the end of an operation changes besides its own row; None: unchanged.

    All of it is written in the transaction that ends the operation, so that nobody sees a model
    that is ready while its creation still runs, or a checkpoint whose save has not ended.
    """

    model_id: ModelId | None = None
    """The model that the four fields below are about."""
    model_state: ModelState | None = None
    model_base: str | None = None
    model_lora: LoraSpec | None = None
    weights_version: int | None = None
    checkpoint: NewCheckpoint | None = None
    delete_sampler: SamplerId | None = None
    tokens: Tokens = Tokens()


NO_EFFECTS = Effects()


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one operation ended: with a result or with a failure."""

    operation_id: OperationId
    result: bytes | None = None
    """wire.payloads.encode_result(result)."""
    failure: Failure | None = None
    effects: Effects = NO_EFFECTS
    was_started: bool = True
    """False: it was taken for an engine that then never saw it."""

    def __post_init__(self) -> None:
        assert (self.result is None) != (self.failure is None)
