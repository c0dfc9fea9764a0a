"""Reverse KL and sums of checkpoints, queued: whose they may read, and once for the same call."""

import httpx
import pytest
from tests.server.http.conftest import MODEL, House
from tests.server.http.saved import ready_model, saved

from mint.core.errors import StorageError
from mint.core.ids import OperationId
from mint.core.operations import InterpolateCheckpoints, ReverseKL
from mint.wire import payloads

DATUM = {
    "student_input": {"chunks": [{"tokens": [1, 7]}]},
    "reference_input": {"chunks": [{"tokens": [5, 6, 7]}]},
    "target_tokens": {"data": [7, 8], "dtype": "int64"},
}


def reverse_kl(house: House, model: str, reference: str, http: httpx.Client | None = None) -> str:
    answer = house.post(
        "mint/forward_backward_reverse_kl", http, model_id=model, seq_id=4, data=[DATUM],
        reference_model_path=reference,
    )  # fmt: skip
    return answer.json()["request_id"]


def interpolate(house: House, paths: list[str], key: str, http: httpx.Client | None = None) -> str:
    answer = (http or house.http).post(
        "/api/v1/mint/checkpoints/interpolate",
        json={"source_paths": paths, "coefficients": [0.5] * len(paths)},
        headers={"X-Idempotency-Key": key},
    )
    return answer.json()["request_id"]


def taken(house: House, request_id: str):
    [(_, kind, payload)] = house.store.take([OperationId(request_id)])
    return payloads.decode(kind, payload)


def test_a_reverse_kl_without_weights_has_ones_and_is_queued_once(house: House):
    model = house.model()
    request = reverse_kl(house, model, MODEL)

    assert reverse_kl(house, model, MODEL) == request
    operation = taken(house, request)
    assert isinstance(operation, ReverseKL)
    assert (operation.reference_base, operation.reference_weights) == (MODEL, None)
    assert operation.data[0].weights.tolist() == [1.0, 1.0]


def test_a_reference_may_be_a_checkpoint_in_any_spelling(house: House):
    path = saved(house, ready_model(house), "a")

    request = reverse_kl(house, house.model(), path.replace("tinker://", "mint://"))

    operation = taken(house, request)
    assert isinstance(operation, ReverseKL)
    assert operation.reference_weights == path


def test_a_sum_is_queued_once_for_the_retries_of_one_call(house: House):
    path = saved(house, ready_model(house), "a")
    requests = [interpolate(house, [path, path], key) for key in ("one", "one", "other")]

    assert requests[0] == requests[1] != requests[2]
    operation = taken(house, requests[0])
    assert isinstance(operation, InterpolateCheckpoints)
    assert operation.source_paths == (path, path)
    assert operation.path == f"tinker://{operation.model_id}/sampler_weights/interpolated"


def test_a_sum_that_cannot_be_queued_leaves_no_session_open(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    def full(*_, **__):
        raise StorageError("the disk is full")

    path = saved(house, ready_model(house), "a")
    before = house.open_sessions()
    with monkeypatch.context() as patch:
        patch.setattr(house.store, "enqueue", full)
        refused = house.http.post(
            "/api/v1/mint/checkpoints/interpolate",
            json={"source_paths": [path], "coefficients": [1.0]},
            headers={"X-Idempotency-Key": "k"},
        )

    assert refused.status_code >= 500
    assert house.open_sessions() == before
    assert isinstance(taken(house, interpolate(house, [path], "k")), InterpolateCheckpoints)


def test_a_strangers_checkpoint_is_neither_a_reference_nor_a_term(house: House):
    path = saved(house, ready_model(house), "a")
    with house.client(house.new_key("stranger")) as http:
        session = house.post("create_session", http).json()["session_id"]
        model = house.post(
            "create_model", http, session_id=session, model_seq_id=0, base_model=MODEL
        ).json()["model_id"]
        for request in (
            reverse_kl(house, model, path, http),
            interpolate(house, [path], "k", http),
        ):
            told = http.post("/api/v1/retrieve_future", json={"request_id": request}).json()
            assert "there is no checkpoint" in told["error"]
