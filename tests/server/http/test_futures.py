"""Polls: held, woken, and never a 5xx."""

import threading
import time

import numpy as np
import pytest
from tests.server.http.conftest import House

from mint.core.errors import Fault
from mint.core.ids import ModelId, OperationId
from mint.core.operations import (
    Done,
    Failure,
    PassResult,
    SampleResult,
    Saved,
    StepResult,
)
from mint.core.sampling import SampledSequence, StopReason
from mint.server.channel import EnginePhase
from mint.server.channel.health import Doing
from mint.server.http import futures
from mint.server.service.futures import describe
from mint.server.store.records import Effects, NewCheckpoint, QueuePlace
from mint.wire import protobuf

PROTOBUF = "application/x-protobuf"


def logprobs(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


SAMPLED = SampleResult(
    sequences=(SampledSequence(np.array([7], dtype=np.int32), logprobs(-0.5), StopReason.STOP),)
)


def test_a_poll_of_waiting_work_says_where_in_the_queue_it_is(house: House):
    sampler = house.sampler()
    ids = [house.sample(sampler, n).json()["request_id"] for n in range(3)]

    answer = house.poll(ids[1])

    assert answer.status_code == 408
    assert answer.json()["queue_state"] == "active"
    assert answer.json()["queue_state_reason"].startswith("number 2 of 3 that wait")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (QueuePlace(before=0, waiting=1, ended_lately=0), "number 1 of 1 that wait"),
        (QueuePlace(before=9, waiting=20, ended_lately=60), "about 10 s"),
        (QueuePlace(before=0, waiting=20, ended_lately=6000), "about 1 s"),
        (QueuePlace(before=99, waiting=100, ended_lately=10), "about 10 min"),
    ],
)
def test_an_expected_wait_is_told_at_the_pace_of_the_last_minute(place: QueuePlace, says: str):
    assert describe(place).endswith(says)


@pytest.mark.parametrize("state", [EnginePhase.STARTING, EnginePhase.DOWN])
def test_a_poll_tells_what_the_engine_is_doing_instead(house: House, state: EnginePhase):
    house.link.state, house.link.detail = state, "converting the model"
    request = house.sample(house.sampler()).json()["request_id"]

    told = house.poll(request).json()

    assert told["queue_state"] == "paused_capacity"
    assert told["queue_state_reason"] == f"engine is {state.value}: converting the model"


def test_a_poll_tells_what_keeps_the_engine_and_for_how_long(house: House):
    request = house.sample(house.sampler()).json()["request_id"]
    house.link.doing = Doing("loading base model tiny", since=time.time() - 12, share=0.4)

    told = house.poll(request).json()

    assert told["queue_state"] == "active"
    assert told["queue_state_reason"].startswith("the engine is loading base model tiny: 40 %, 1")
    assert told["queue_state_reason"].endswith(" s so far")
    detail = house.http.get("/healthz").json()["engine"]["detail"]
    assert detail.startswith("loading base model tiny: 40 %, 1")


def test_a_held_poll_is_woken_by_the_end_of_its_work(house: House, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(futures, "HOLD_S", 30.0)
    request = house.sample(house.sampler()).json()["request_id"]
    soon = threading.Timer(0.3, lambda: house.end(request, SAMPLED))
    soon.start()

    began = time.monotonic()
    answer = house.poll(request)

    assert answer.status_code == 200
    assert time.monotonic() - began < 20  # it would have been held for 30
    assert answer.json()["sequences"] == [
        {"stop_reason": "stop", "tokens": [7], "logprobs": [-0.5]}
    ]


def test_protobuf_goes_to_those_who_ask_for_it(house: House):
    request = house.sample(house.sampler()).json()["request_id"]
    house.end(request, SAMPLED)

    binary = house.poll(request, Accept=PROTOBUF)

    assert binary.headers["content-type"] == PROTOBUF
    assert binary.content == protobuf.encode_sample(SAMPLED)
    assert house.poll(request, Accept="application/json").json()["type"] == "sample"


@pytest.mark.parametrize(
    ("fault", "category"),
    [(Fault.USER, "user"), (Fault.SERVER, "server"), (Fault.CANCELLED, "unknown")],
)
def test_a_failure_is_told_with_status_200_and_its_category(
    house: House, fault: Fault, category: str
):
    request = house.sample(house.sampler()).json()["request_id"]
    house.end(request, Failure("no luck", fault))

    answer = house.poll(request, Accept=PROTOBUF)

    assert answer.status_code == 200
    assert answer.json() == {"error": "no luck", "category": category}


def test_a_result_can_be_read_again(house: House):
    request = house.sample(house.sampler()).json()["request_id"]
    house.end(request, SAMPLED)

    assert house.poll(request).content == house.poll(request).content


@pytest.mark.parametrize(("kind", "status"), [("Sample", 410), ("OptimStep", 404)])
def test_a_lost_sample_may_be_sent_again_but_training_may_not(house: House, kind: str, status: int):
    answer = house.poll("123456", **{"X-Tinker-Request-Type": kind})

    assert answer.status_code == status
    assert "123456" in answer.json()["detail"]


@pytest.mark.parametrize("request_id", ["x", "", "../1", "1e3", "²", "9" * 40])
def test_an_id_that_is_none_is_not_found(house: House, request_id: str):
    assert house.poll(request_id).status_code == 404


def test_a_poll_never_ends_in_a_server_error(house: House, monkeypatch: pytest.MonkeyPatch):
    request = house.sample(house.sampler()).json()["request_id"]

    def broken(*_):
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr(house.store, "operation", broken)
    answer = house.poll(request)

    assert answer.status_code == 200
    assert answer.json()["category"] == "server"
    assert "incident" in answer.json()["error"]


def test_diverged_numbers_in_json_are_a_failed_result(house: House):
    request = house.sample(house.sampler()).json()["request_id"]
    sequence = SampledSequence(np.array([7], "i4"), logprobs(float("nan")), StopReason.STOP)
    house.end(request, SampleResult(sequences=(sequence,)))

    assert "not finite" in house.poll(request, Accept="application/json").json()["error"]
    assert house.poll(request, Accept=PROTOBUF).headers["content-type"] == PROTOBUF


def test_each_kind_of_training_work_has_its_answer(house: House):
    model = house.model()
    step = house.post("optim_step", model_id=model, seq_id=1).json()["request_id"]
    save = house.post("save_weights", model_id=model, path="a", seq_id=2).json()["request_id"]
    unload = house.post("unload_model", model_id=model).json()["request_id"]
    path = f"tinker://{model}/weights/a"
    nan = float("nan")

    house.end(step, StepResult(metrics={"grad_norm": nan, "x": 1.0}, weights_version=1))
    house.end(save, Saved(files={}, weights_version=1, path=path))
    house.end(unload, Done())

    assert house.poll(step).json() == {"metrics": {"x": 1.0}, "type": "optim_step"}
    assert house.poll(save).json() == {"path": path, "type": "save_weights"}
    assert house.poll(unload).json() == {"model_id": model, "type": "unload_model"}


def test_an_ephemeral_save_answers_with_a_sampling_session_and_no_path(house: House):
    session = house.session()
    model = house.model(session)
    ask = {"model_id": model, "seq_id": 1, "sampling_session_seq_id": 4}
    request = house.post("save_weights_for_sampler", **ask).json()["request_id"]
    # The retry of a lost answer draws a new number for its sampling session.
    retry = house.post("save_weights_for_sampler", **{**ask, "sampling_session_seq_id": 5}).json()
    house.end(request, Done())

    assert retry["request_id"] == request
    assert house.poll(request).json() == {
        "sampling_session_id": f"{session}:sample:4",
        "type": "save_weights_for_sampler",
    }
    told = house.http.get(f"/api/v1/samplers/{session}:sample:4").json()
    assert told == {
        "sampler_id": f"{session}:sample:4",
        "base_model": "tiny",
        "model_path": None,
    }


def test_a_pass_in_json_answers_in_json(house: House):
    model = house.model()
    given = {
        "data": [
            {
                "model_input": {"chunks": [{"tokens": [1, 2]}]},
                "loss_fn_inputs": {"target_tokens": {"data": [2, 3], "dtype": "int64"}},
            }
        ],
        "loss_fn": "cross_entropy",
    }
    request = house.post("forward", model_id=model, seq_id=1, forward_input=given).json()
    house.end(
        request["request_id"], PassResult(logprobs=(logprobs(-1, -2),), metrics={"loss:sum": 3.0})
    )

    assert house.poll(request["request_id"]).json() == {
        "loss_fn_output_type": "ArrayRecord",
        "loss_fn_outputs": [{"logprobs": {"data": [-1.0, -2.0], "dtype": "float32", "shape": [2]}}],
        "metrics": {"loss:sum": 3.0},
    }


def test_cancelling_ends_waiting_work_and_asks_for_the_end_of_running_work(house: House):
    sampler = house.sampler()
    running, waiting = (house.sample(sampler, i).json()["request_id"] for i in range(2))
    house.store.take([OperationId(running)])

    for request in (running, waiting):
        assert house.post("cancel_future", request_id=request).status_code == 204

    assert house.link.cancelled == [running]
    assert "cancelled" in house.poll(waiting).json()["error"]


def test_checkpoints_and_runs_are_listed_with_what_clients_require(house: House):
    model = house.model()
    save = house.post("save_weights", model_id=model, path="a", seq_id=1).json()["request_id"]
    row = house.store.model(house.owner, ModelId(model))
    folder = house.data / "checkpoints" / "f"
    folder.mkdir(parents=True)
    checkpoint = NewCheckpoint(
        path=f"tinker://{model}/weights/a",
        owner=row.owner,
        model_id=row.model_id,
        kind="weights",
        name="a",
        base_model="tiny",
        lora=row.lora,
        folder="checkpoints/f",
        size_bytes=5,
    )
    house.store.finish(OperationId(save), b"{}", effects=Effects(checkpoint=checkpoint))

    run = house.http.get(f"/api/v1/training_runs/{model}").json()
    listed = house.http.get("/api/v1/checkpoints").json()
    info = house.post("weights_info", tinker_path=f"mint://{model}/weights/a").json()

    assert run["last_checkpoint"]["tinker_path"] == checkpoint.path
    assert run["last_request_time"].endswith("+00:00")
    assert listed["cursor"]["total_count"] == 1
    assert listed["checkpoints"][0]["checkpoint_id"] == "weights/a"
    assert (info["base_model"], info["lora_rank"], info["is_lora"]) == ("tiny", 32, True)

    gone = house.http.delete(f"/api/v1/training_runs/{model}/checkpoints/weights/a")

    assert gone.status_code == 204
    assert not folder.exists()
    assert house.http.get("/api/v1/checkpoints").json()["checkpoints"] == []
