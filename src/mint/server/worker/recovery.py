"""What becomes of operations when the engine they lived in is gone. The decision is pure."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from mint.core.errors import Fault
from mint.core.ids import ModelId, OperationId, SamplerId
from mint.core.operations import BEGINNINGS, Done, Failure
from mint.server.store.records import (
    NO_EFFECTS,
    Effects,
    ModelState,
    PendingOperation,
)
from mint.server.store.store import Store
from mint.wire import payloads

_log = logging.getLogger(__name__)


class Fate(StrEnum):
    WAIT = "wait"
    """It needs nothing that was lost: it stays in the queue."""
    LOST = "lost"
    """It fails, and says from what to resume."""
    DONE = "done"
    """It asked for what the loss has done anyway: the end of a model or of pinned weights."""


@dataclass(frozen=True)
class Verdict:
    operation: PendingOperation
    fate: Fate
    model_id: ModelId | None = None
    """The model whose loss it is."""


def judge(
    running: Iterable[PendingOperation],
    pending: Iterable[PendingOperation],
    pinned: Mapping[SamplerId, ModelId],
) -> list[Verdict]:
    """Decide about every open operation after the loss of all that lived in an engine.

    What was running is lost: how far it came is unknown, and it may be what killed the engine. What
    waits goes on if it finds what it needs in files (a sample of the base model or of a checkpoint,
    a new model) or in something that is itself still to be made from there.

    Args:
        running, pending: in order of arrival.
        pinned: samplers whose weights were in memory, and their model.
    """
    reborn_models: set[str] = set()
    reborn_samplers: set[str] = set()

    def pin_of(operation: PendingOperation) -> ModelId | None:
        return pinned.get(operation.sampler_id) if operation.sampler_id else None

    def fate_of(operation: PendingOperation) -> Verdict:
        model_id = operation.model_id
        if operation.kind in ("UnloadModel", "ReleaseSampler"):
            needed = operation.sampler_id if operation.kind == "ReleaseSampler" else model_id
            lives = needed in reborn_models or needed in reborn_samplers
            return Verdict(operation, Fate.WAIT if lives else Fate.DONE)
        if operation.kind in BEGINNINGS and model_id:
            reborn_models.add(model_id)
            return Verdict(operation, Fate.WAIT)
        if operation.kind == "Sample":
            if operation.sampler_id in reborn_samplers or not pin_of(operation):
                return Verdict(operation, Fate.WAIT)
            return Verdict(operation, Fate.LOST, pin_of(operation))
        if model_id is None or model_id in reborn_models:
            if operation.kind == "PinSampler" and operation.sampler_id:
                reborn_samplers.add(operation.sampler_id)
            return Verdict(operation, Fate.WAIT)
        return Verdict(operation, Fate.LOST, model_id)

    lost = [
        Verdict(operation, Fate.LOST, operation.model_id or pin_of(operation))
        for operation in running
    ]
    return lost + [fate_of(operation) for operation in pending]


def recover(store: Store, what: str) -> list[OperationId]:
    """End what cannot go on after the engine's end, and note which models are lost.

    Only while no engine process works on this store. Doing it twice changes nothing.

    Args:
        what: what happened, in words: "the engine process was killed by signal 9".

    Returns:
        The operations that ended by it.
    """
    running, pending = store.running(), store.pending()
    samplers = {op.sampler_id for op in (*running, *pending) if op.sampler_id is not None}
    store.lose_models(model.model_id for model in store.models_in_memory())
    ended = []
    for verdict in judge(running, pending, store.pinned_among(samplers)):
        if verdict.fate is Fate.WAIT:
            continue
        operation = verdict.operation
        if verdict.fate is Fate.DONE:
            store.finish(operation.operation_id, payloads.encode_result(Done()))
        else:
            failure = Failure(lost_message(store, what, verdict.model_id), Fault.SERVER)
            store.finish(operation.operation_id, None, failure, _effects_of_loss(operation))
        ended.append(operation.operation_id)
    if ended:
        _log.warning("%s; %d operations ended with it", what, len(ended))
    return ended


def fail_all(store: Store, what: str) -> list[OperationId]:
    """End everything that waits, when no engine process will come any more."""
    ended = []
    for operation in (*store.running(), *store.pending()):
        message = f"{lost_message(store, what, operation.model_id)} Restart the server."
        failure = Failure(message, Fault.SERVER)
        store.finish(operation.operation_id, None, failure, _effects_of_loss(operation))
        ended.append(operation.operation_id)
    return ended


def lost_message(store: Store, what: str, model_id: ModelId | None) -> str:
    """What happened, what is lost, and from where to go on."""
    sentence = f"{what[:1].upper()}{what[1:]}."
    if model_id is None:
        return f"{sentence} The request was not answered; send it again."
    newest = store.newest_checkpoint(model_id)
    if newest is None:
        return (
            f"{sentence} The live weights of {model_id} went with it, and no checkpoint of it was "
            "saved: training has to begin anew."
        )
    return (
        f"{sentence} The live weights of {model_id} went with it. Resume from its newest "
        f"checkpoint: create_training_client_from_state_with_optimizer({newest.path!r})."
    )


def _effects_of_loss(operation: PendingOperation) -> Effects:
    if operation.kind in BEGINNINGS:
        return Effects(model_id=operation.model_id, model_state=ModelState.FAILED)
    return NO_EFFECTS
