"""Names of the things that have an identity. All are strings without "/" (wire-safe)."""

from typing import NewType

ModelId = NewType("ModelId", str)
"""One training model: "<session_id>:train:<model_seq_id>". Clients compute it themselves."""

SessionId = NewType("SessionId", str)
SamplerId = NewType("SamplerId", str)
"""One sampling session: weights pinned when it was created."""

OperationId = NewType("OperationId", str)
"""One queued unit of work; the wire calls it request_id."""

KeyId = NewType("KeyId", str)
Owner = NewType("Owner", str)
"""Who a key acts for. Two keys of one owner see the same objects."""


def model_id(session_id: str, model_seq_id: int) -> ModelId:
    """The id that client and server both derive for a session's n-th model."""
    return ModelId(f"{session_id}:train:{model_seq_id}")


def sampler_id(session_id: str, sampling_session_seq_id: int) -> SamplerId:
    """The id of a session's n-th sampling session."""
    return SamplerId(f"{session_id}:sample:{sampling_session_seq_id}")
