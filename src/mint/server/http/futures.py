"""Results: waited for, or withdrawn.

A poll must never end in a 5xx, which the client repeats at once and for ever. Whatever goes wrong
here is a failed result: status 200, `error` and `category`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from mint.core.checkpoints import CheckpointKind, CheckpointRef
from mint.core.errors import Fault, MintError, NotFoundError
from mint.core.ids import OperationId
from mint.core.operations import Imported, Interpolated, PassResult, SampleResult, Saved, StepResult
from mint.server.http.deps import Caller, Futures, read
from mint.server.http.errors import LostFutureError, failure, incident, status_of
from mint.server.service.futures import Waiting
from mint.server.store.records import OperationRecord, OperationStatus
from mint.wire import convert, payloads
from mint.wire import json_models as body
from mint.wire.versions import JSON, PROTOBUF, wants_protobuf

router = APIRouter()

HOLD_S = 30.0
"""How long a poll is held. Clients give up after 45 s."""

_AS_PROTOBUF = ("ForwardBackward", "ReverseKL", "Sample")


@router.post("/api/v1/retrieve_future")
async def retrieve_future(request: Request, caller: Caller, futures: Futures) -> Response:
    """The result of accepted work, its failure, or 408 with what it waits for."""
    asked = await read(request, body.RetrieveFuture)
    try:
        found = await futures.retrieve(caller, OperationId(asked.request_id), HOLD_S)
        if isinstance(found, Waiting):
            return _pending(found)
        return _ended(found, as_protobuf=wants_protobuf(request.headers.get("accept")))
    except NotFoundError as error:
        raise _lost(request, error) from error
    except MintError as error:
        if status_of(error) < 500:
            raise
        return _json(failure(str(error), error.fault))
    except Exception as error:
        return _json(failure(incident(request, error), Fault.SERVER))


@router.post("/api/v1/cancel_future", status_code=204)
async def cancel_future(request: Request, caller: Caller, futures: Futures) -> Response:
    """Withdraw an operation; one that has ended stays as it is."""
    asked = await read(request, body.CancelFuture)
    await futures.cancel(caller, OperationId(asked.request_id))
    return Response(status_code=204)


def _lost(request: Request, error: NotFoundError) -> NotFoundError:
    """410 for samples: the client sends the request again, at no harm. Its header tells, since an
    id does not; a training call is never repeated, as it may have been done."""
    if request.headers.get("x-tinker-request-type") == "Sample":
        return LostFutureError(str(error))
    return error


def _pending(waiting: Waiting) -> Response:
    state = "paused_capacity" if waiting.is_paused else "active"
    return _json({"queue_state": state, "queue_state_reason": waiting.reason}, status=408)


def _ended(record: OperationRecord, *, as_protobuf: bool) -> Response:
    if record.status is OperationStatus.FAILED or record.result is None:
        return _json(
            failure(record.error or "no reason was recorded", record.fault or Fault.SERVER)
        )
    if as_protobuf and record.kind in _AS_PROTOBUF:
        return Response(record.result, media_type=PROTOBUF)
    return _json(_ANSWERS[record.kind](record, record.result))


def _model_created(record: OperationRecord, _: bytes) -> dict[str, Any]:
    return {"model_id": record.model_id, "type": "create_model"}


def _model_loaded(record: OperationRecord, _: bytes) -> dict[str, Any]:
    return {"model_id": record.model_id, "type": "load_weights"}


def _imported(record: OperationRecord, result: bytes) -> dict[str, Any]:
    decoded = payloads.decode_result(record.kind, result)
    assert isinstance(decoded, Imported)
    return {"path": decoded.path, "type": "import"}


def _interpolated(record: OperationRecord, result: bytes) -> dict[str, Any]:
    decoded = payloads.decode_result(record.kind, result)
    assert isinstance(decoded, Interpolated)
    return {
        "path": decoded.path,
        "checkpoint_type": "sampler",
        "rank": decoded.lora.rank,
        "type": "mint_interpolate_checkpoints",
    }


def _model_unloaded(record: OperationRecord, _: bytes) -> dict[str, Any]:
    return {"model_id": record.model_id, "type": "unload_model"}


def _pass(record: OperationRecord, result: bytes) -> dict[str, Any]:
    decoded = payloads.decode_result(record.kind, result)
    assert isinstance(decoded, PassResult)
    return convert.pass_to_json(decoded)


def _step(record: OperationRecord, result: bytes) -> dict[str, Any]:
    decoded = payloads.decode_result(record.kind, result)
    assert isinstance(decoded, StepResult)
    return convert.step_to_json(decoded)


def _saved(record: OperationRecord, result: bytes) -> dict[str, Any]:
    decoded = payloads.decode_result(record.kind, result)
    assert isinstance(decoded, Saved)
    kind = CheckpointRef.parse(decoded.path).kind
    return {"path": decoded.path, "type": _SAVED_AS[kind]}


def _pinned(record: OperationRecord, _: bytes) -> dict[str, Any]:
    # No "path": SDKs up to 0.19 assert that there is none.
    return {"sampling_session_id": record.sampler_id, "type": "save_weights_for_sampler"}


def _sampled(record: OperationRecord, result: bytes) -> dict[str, Any]:
    decoded = payloads.decode_result(record.kind, result)
    assert isinstance(decoded, SampleResult)
    return convert.sample_to_json(decoded)


def _done(record: OperationRecord, _: bytes) -> dict[str, Any]:
    return {"type": "done"}


_SAVED_AS = {
    CheckpointKind.TRAINING: "save_weights",
    CheckpointKind.SAMPLER: "save_weights_for_sampler",
    CheckpointKind.EXTERNAL: "save_weights_external",
}

_ANSWERS: Mapping[str, Callable[[OperationRecord, bytes], dict[str, Any]]] = {
    "CreateModel": _model_created,
    "CreateModelFrom": _model_loaded,
    "ImportAdapter": _imported,
    "InterpolateCheckpoints": _interpolated,
    "ForwardBackward": _pass,
    "ReverseKL": _pass,
    "OptimStep": _step,
    "SaveWeights": _saved,
    "LoadWeights": _model_loaded,
    "PinSampler": _pinned,
    "Sample": _sampled,
    "UnloadModel": _model_unloaded,
    "ReleaseSampler": _done,
    "ResolveModel": _done,
}
"""The JSON answer for each kind of operation. Never with a key "error": it reads as a failure."""


def _json(content: dict[str, Any], status: int = 200) -> Response:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text, status_code=status, media_type=JSON)
