"""Work that is accepted, once, with its mistakes told by its future."""

import pytest
from tests.server.http.conftest import House

from mint.core.ids import ModelId, OperationId
from mint.core.operations import CreateModel, Sample
from mint.server.store.records import OperationStatus
from mint.wire import payloads


def failure_of(house: House, request_id: str) -> str:
    answer = house.poll(request_id)
    assert answer.status_code == 200
    assert answer.json()["category"] == "user"
    return answer.json()["error"]


def queued(house: House) -> list[str]:
    return [row.kind for row in house.store.pending()]


def a_datum(**inputs: dict) -> dict:
    return {"model_input": {"chunks": [{"tokens": [1, 2]}]}, "loss_fn_inputs": inputs}


TARGETS = {"data": [2, 3], "dtype": "int64"}


def passing(house: House, model: str, seq: int, *data: dict, loss_fn: str = "cross_entropy") -> str:
    given = {"data": list(data), "loss_fn": loss_fn}
    return house.post(
        "forward_backward", model_id=model, seq_id=seq, forward_backward_input=given
    ).json()["request_id"]


def test_a_model_is_queued_with_the_shape_it_was_asked_for(house: House):
    session = house.session()
    answer = house.post(
        "create_model",
        session_id=session,
        model_seq_id=3,
        base_model="tiny",
        lora_config={"rank": 8, "seed": 5, "train_mlp": False},
    ).json()

    [(_, kind, payload)] = house.store.take([OperationId(answer["request_id"])])
    operation = payloads.decode(kind, payload)
    assert isinstance(operation, CreateModel)
    assert answer["model_id"] == operation.model_id == f"{session}:train:3"
    assert (operation.lora.rank, operation.lora.seed, operation.lora.train_mlp) == (8, 5, False)
    assert house.link.woken == 1


def test_a_repeated_request_gets_the_first_promise_back(house: House):
    session = house.session()
    model, sampler = house.model(session), house.sampler(session)

    again = house.post("create_model", session_id=session, model_seq_id=0, base_model="tiny")
    steps = [house.post("optim_step", model_id=model, seq_id=7).json() for _ in range(2)]
    samples = [house.sample(sampler, 2).json() for _ in range(2)]

    assert again.json()["model_id"] == model
    assert steps[0] == steps[1]
    assert samples[0] == samples[1]
    assert queued(house) == ["CreateModel", "OptimStep", "Sample"]


def test_a_session_is_opened_once_for_the_retries_of_one_call(house: House):
    ids = {
        house.http.post(
            "/api/v1/create_session", json={}, headers={"X-Idempotency-Key": "same"}
        ).json()["session_id"]
        for _ in range(2)
    }

    assert len(ids) == 1


def test_each_sequence_asked_for_has_an_id_of_its_own(house: House):
    sampler = house.sampler()

    ids = [
        sequence
        for seq in range(2)
        for sequence in house.sample(sampler, seq, num_samples=3).json()["sample_sequence_ids"]
    ]

    assert len(set(ids)) == 6


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("optim_step", {"adam_params": {"learning_rate": -1}}, "learning_rate"),
        ("optim_step", {"optimizer_params": {"type": "dimuon"}}, "dimuon"),
        ("save_weights", {"path": "a/b"}, "a/b"),
        ("save_weights", {}, "no name"),
        ("save_weights", {"path": "a", "ttl_seconds": -5}, "ttl_seconds"),
        ("save_weights", {"path": "a", "ttl_seconds": 1 << 40}, "ttl_seconds"),
        ("load_weights", {"path": "/etc/passwd"}, "not a checkpoint path"),
        ("load_weights", {"path": "tinker://m/weights/x"}, "there is no checkpoint"),
        (
            "load_weights",
            {"path": "tinker://m/sampler_weights/x", "optimizer": True},
            "holds no optimizer state",
        ),
        (
            "save_weights_for_sampler",
            {"sampling_session_seq_id": 1, "kind": "inflight"},
            "inflight",
        ),
    ],
)
def test_mistakes_in_work_on_a_model_are_its_failed_result(
    house: House, path: str, body: dict, says: str
):
    model = house.model()

    answer = house.post(path, model_id=model, seq_id=1, **body)

    assert answer.status_code == 200
    assert says in failure_of(house, answer.json()["request_id"])
    assert queued(house) == ["CreateModel"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"base_model": "other"}, "Available: tiny"),
        ({"lora_config": {"rank": 0}}, "rank=0"),
        ({"lora_config": {"train_mlp": False, "train_attn": False, "train_unembed": False}}, "all"),
        ({"optimizer_config": {"type": "dimuon", "version": 1}}, "dimuon"),
    ],
)
def test_mistakes_in_a_new_model_are_its_failed_result(house: House, body: dict, says: str):
    given = {"session_id": house.session(), "model_seq_id": 0, "base_model": "tiny", **body}

    request = house.post("create_model", **given).json()["request_id"]

    assert says in failure_of(house, request)
    assert queued(house) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"sampling_params": {"max_tokens": 14}}, "3 tokens and max_tokens is 14"),
        ({"sampling_params": {"max_tokens": 0}}, "max_tokens=0"),
        ({"prompt": {"chunks": []}}, "prompt is empty"),
        ({"prompt": {"chunks": [{"tokens": [100]}]}}, "ids run from 0 to 99"),
        ({"prompt": {"chunks": [{"type": "image", "data": "", "format": "png"}]}}, "an image"),
        ({"prompt": {"chunks": [{"tokens": [1] * 16}]}, "sampling_params": {}}, "16 tokens"),
        ({"prompt_logprobs_last_n": 2}, "prompt_logprobs_last_n"),
        ({"num_samples": 100_000}, "num_samples=100000"),
    ],
)
def test_mistakes_in_a_sample_are_its_failed_result(house: House, fields: dict, says: str):
    answer = house.sample(house.sampler(), **fields)

    assert answer.status_code == 200
    assert says in failure_of(house, answer.json()["request_id"])


def test_without_max_tokens_the_rest_of_the_context_is_meant(house: House):
    request = house.sample(house.sampler(), sampling_params={}).json()["request_id"]

    [(_, kind, payload)] = house.store.take([OperationId(request)])
    operation = payloads.decode(kind, payload)
    assert isinstance(operation, Sample)
    assert operation.params.max_tokens == 16 - 3


def test_a_bad_datum_is_named_and_the_next_step_is_refused_for_it(house: House):
    model = house.model()
    good, bad = a_datum(target_tokens=TARGETS), a_datum(weights=TARGETS)

    passing(house, model, 1, good)
    failing = passing(house, model, 2, good, bad)
    refused = house.post("optim_step", model_id=model, seq_id=3).json()["request_id"]
    passing(house, model, 4, good)
    next_one = house.post("optim_step", model_id=model, seq_id=5).json()["request_id"]

    assert "data[1].loss_fn_inputs['target_tokens'] is missing" in failure_of(house, failing)
    assert queued(house)[1:] == ["ForwardBackward", "OptimStep"] * 2
    assert house.store.failed_pass_before(OperationId(refused), ModelId(model)) == failing
    assert house.store.failed_pass_before(OperationId(next_one), ModelId(model)) is None


def test_a_failed_forward_only_pass_spoils_no_step(house: House):
    model = house.model()
    given = {"data": [a_datum(weights=TARGETS)], "loss_fn": "cross_entropy"}
    request = house.post("forward", model_id=model, seq_id=1, forward_input=given).json()

    house.post("optim_step", model_id=model, seq_id=2)

    assert "target_tokens" in failure_of(house, request["request_id"])
    assert queued(house)[1:] == ["OptimStep"]
    [*_, step] = house.store.pending()
    assert house.store.failed_pass_before(step.operation_id, ModelId(model)) is None


@pytest.mark.parametrize(
    ("datum", "loss_fn", "says"),
    [
        (a_datum(target_tokens=TARGETS), "no_such_loss", "no_such_loss"),
        (a_datum(target_tokens={"data": [2, 100], "dtype": "int64"}), "cross_entropy", "[1] is"),
        (a_datum(target_tokens={"data": ["a"], "dtype": "int64"}), "cross_entropy", "no list of"),
        (
            {"model_input": {"chunks": [{"tokens": [1] * 17}]}, "loss_fn_inputs": {}},
            "cross_entropy",
            "target_tokens",
        ),
    ],
)
def test_a_pass_that_cannot_be_computed_is_not_queued(
    house: House, datum: dict, loss_fn: str, says: str
):
    model = house.model()

    request = passing(house, model, 1, datum, loss_fn=loss_fn)

    assert says in failure_of(house, request)
    assert queued(house) == ["CreateModel"]


def test_too_many_waiting_samples_are_told_to_come_back(house: House):
    sampler = house.sampler()
    accepted = [house.sample(sampler, seq) for seq in range(3)]

    refused = house.sample(sampler, 3)

    assert [answer.status_code for answer in accepted] == [200, 200, 200]
    assert refused.status_code == 429
    assert len(queued(house)) == 3


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"base_model": "other"}, 400, "Available: tiny"),
        ({"model_path": "tinker://m/weights/none"}, 404, "there is no checkpoint"),
        ({"model_path": "nonsense"}, 400, "not a checkpoint path"),
        ({}, 400, "either base_model or model_path"),
    ],
)
def test_a_sampling_session_on_nothing_is_refused(house: House, body: dict, status: int, says: str):
    answer = house.post(
        "create_sampling_session", session_id=house.session(), sampling_session_seq_id=0, **body
    )

    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_a_finished_session_lets_its_models_and_samplers_go(house: House):
    session = house.session()
    model = house.model(session)
    house.sampler(session)
    house.post("optim_step", model_id=model, seq_id=1)

    done = house.post(f"sessions/{session}/finish", reason={"type": "success"})

    assert done.status_code == 204
    assert queued(house) == ["CreateModel", "OptimStep", "ReleaseSampler", "UnloadModel"]
    assert house.post("session_heartbeat", session_id=session).status_code == 410
    late = house.post("optim_step", model_id=model, seq_id=2).json()["request_id"]
    assert f"session {session!r} ended" in failure_of(house, late)


def test_an_internal_error_while_reading_work_is_its_failed_result(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_):
        raise RuntimeError("boom")

    sampler = house.sampler()
    monkeypatch.setattr(house.store, "pending_samples_of", broken)

    request = house.sample(sampler).json()["request_id"]

    record = house.store.operation(house.owner, OperationId(request))
    assert record.status is OperationStatus.FAILED
    answer = house.poll(request).json()
    assert answer["category"] == "server"
    assert "incident" in answer["error"]
    assert "boom" not in answer["error"]


def test_finishing_a_session_again_queues_nothing_again(house: House):
    session = house.session()
    house.model(session)

    for _ in range(2):
        house.post(f"sessions/{session}/finish", reason={"type": "success"})

    assert queued(house) == ["CreateModel", "UnloadModel"]


def test_work_on_a_model_that_died_with_its_engine_says_so_at_once(house: House):
    model = house.model()
    house.store.lose_models([ModelId(model)])

    request = house.post("optim_step", model_id=model, seq_id=1).json()["request_id"]

    answer = house.poll(request).json()
    assert answer["category"] == "server"
    assert "lost with the engine process" in answer["error"]
    assert "no saved checkpoint" in answer["error"]
