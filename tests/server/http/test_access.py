"""Who gets in, what is not there, and bodies that cannot be read."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import zstandard
from fastapi.routing import APIRoute
from tests.server.http.conftest import House

from mint.core.errors import StorageError
from mint.core.lora import LoraSpec
from mint.core.operations import ModelReady
from mint.server.app import ROUTERS
from mint.server.http import deps


def test_every_route_below_api_v1_wants_a_key(house: House):
    routes = [route for part in ROUTERS for route in part.routes if isinstance(route, APIRoute)]
    asked = 0
    with httpx.Client(base_url=house.url, verify=False) as nobody:
        for route in routes:
            if not route.path.startswith("/api/v1/"):
                continue
            path = re.sub(r"\{[^}]*\}", "x", route.path)
            for method in route.methods or ():
                answer = nobody.request(method, path, json={})
                assert answer.status_code == 401, (method, path)
                assert "API key" in answer.json()["detail"]
                asked += 1
    assert asked > 25


@pytest.mark.parametrize("prefix", ["", "tml-"])
def test_a_key_works_in_both_spellings(house: House, prefix: str):
    with house.client(prefix + house.key) as http:
        assert house.post("client/config", http, sdk_version="0.38.0").status_code == 200


def test_a_revoked_key_is_refused_at_once(house: House):
    [key] = [key for key in house.store.list_keys() if key.owner == house.owner]
    house.store.revoke_key(key.key_id)

    assert house.post("client/config").status_code == 401


def test_health_is_told_without_a_key(house: House):
    answer = httpx.get(f"{house.url}/healthz").json()

    assert answer["status"] == "ok"
    assert answer["engine"]["capacity"]["adapters"] == 2


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_what_is_not_offered_is_said_by_name(house: House, method: str):
    answer = house.http.request(method, "/api/v1/create_something/x")

    assert answer.status_code == 404
    assert f"{method} /api/v1/create_something/x is not offered" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("create_model", b"{", "JSON"),
        ("create_model", b"[1]", "should be an object"),
        ("create_model", b'{"session_id": "s"}', "model_seq_id: Field required"),
        ("get_info", b'{"model_id": 7}', "model_id"),
        ("asample", b'{"sampling_session_id": "s", "prompt": {"chunks": 1}}', "prompt.chunks"),
        ("retrieve_future", b"", "request_id: Field required"),
        ("optim_step", b'{"model_id": "m", "seq_id": 9223372036854775808}', "seq_id"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_with_the_field(
    house: House, path: str, body: bytes, says: str
):
    answer = house.http.post(f"/api/v1/{path}", content=body)

    assert answer.status_code == 400
    assert says in answer.json()["detail"]


def test_a_query_that_cannot_be_read_is_refused_with_the_field(house: House):
    for path, query in (("training_runs", {"limit": "many"}), ("sessions", {"offset": 1 << 63})):
        answer = house.http.get(f"/api/v1/{path}", params=query)

        assert answer.status_code == 400
        assert next(iter(query)) in answer.json()["detail"]


def test_a_pass_in_an_unknown_content_type_is_refused_with_the_known_ones(house: House):
    answer = house.http.post(
        "/api/v1/forward_backward", content=b"x", headers={"Content-Type": "text/csv"}
    )

    assert answer.status_code == 415
    assert "application/x-protobuf" in answer.json()["detail"]


def test_a_damaged_protobuf_body_is_refused(house: House):
    answer = house.http.post(
        "/api/v1/forward_backward",
        content=b"\xff\xff\xff",
        headers={"Content-Type": "application/x-protobuf"},
    )

    assert answer.status_code == 400
    assert "ForwardBackwardRequest" in answer.json()["detail"]


def test_a_compressed_body_is_understood(house: House):
    body = zstandard.compress(b'{"sdk_version": "0.38.0", "tags": ["a"]}')

    answer = house.http.post(
        "/api/v1/create_session", content=body, headers={"Content-Encoding": "zstd"}
    )

    assert answer.status_code == 200


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_body_above_the_limit_is_refused_with_the_limit(
    house: House, monkeypatch: pytest.MonkeyPatch, is_packed: bool
):
    monkeypatch.setattr(deps, "MAX_BODY_BYTES", 1000)
    body = b" " * 1001
    headers = {"Content-Encoding": "zstd"} if is_packed else {}

    answer = house.http.post(
        "/api/v1/create_session",
        content=zstandard.compress(body) if is_packed else body,
        headers=headers,
    )

    assert answer.status_code == 413
    assert "1000" in answer.json()["detail"]


def test_bodies_that_wait_to_be_read_are_as_small_as_they_were_sent(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    now, most = [], []

    def unpack(body: bytes, *_: object) -> bytes:
        now.append(body)
        most.append(len(now))
        time.sleep(0.05)
        now.pop()
        return b""

    monkeypatch.setattr(deps, "decompress", unpack)
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "zstd"}

    def send(_: int) -> int:
        answer = house.http.post("/api/v1/forward_backward", content=b"x", headers=headers)
        return answer.status_code

    with ThreadPoolExecutor(6) as senders:
        assert list(senders.map(send, range(6))) == [404] * 6
    assert max(most) == deps.PASSES_READ


def test_telemetry_is_accepted_and_not_looked_at(house: House):
    answer = house.http.post("/api/v1/telemetry", content=b"\x00 no json, with a key in it")

    assert answer.json() == {"status": "accepted"}


def test_clients_are_told_settings_without_nulls(house: House):
    config = house.post("client/config", sdk_version="0.38.0").json()

    assert None not in config.values()
    assert config["parallel_fwdbwd_chunks"] is False
    assert house.post("client/dynamic_config").json()["sample_cancel_enabled"] is True


def test_a_bug_of_ours_is_told_with_an_incident_id(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def broken(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr(house.store, "list_sessions", broken)

    answer = house.http.get("/api/v1/sessions")

    found = re.search(r"incident (\w+)", answer.json()["detail"])
    assert answer.status_code == 500
    assert found
    assert any(found[1] in record.message for record in caplog.records)
    assert "boom" not in answer.text


def test_a_full_disk_is_said_and_may_be_tried_again(house: House, monkeypatch: pytest.MonkeyPatch):
    def full(*_, **__):
        raise StorageError("database or disk is full")

    model = house.model()
    monkeypatch.setattr(house.store, "enqueue", full)
    monkeypatch.setattr(house.store, "create_session", full)

    for answer in (house.post("create_session"), house.post("optim_step", model_id=model)):
        assert answer.status_code == 503
        assert "disk is full" in answer.json()["detail"]


def test_each_request_moves_the_time_of_the_last_one(house: House):
    before = time.monotonic()

    httpx.get(f"{house.url}/healthz")

    assert before <= house.app.state.last_request_at <= time.monotonic()


def test_a_tokenizers_files_are_handed_out_and_nothing_else(house: House):
    listed = house.http.get("/api/v1/mint/tokenizer", params={"model": "tiny"}).json()

    [file] = listed["files"]
    assert file["name"] == "tokenizer.json"
    got = house.http.get("/api/v1/mint/tokenizer/tokenizer.json", params={"model": "tiny"})
    assert got.content == b'{"model": {}}'
    assert len(got.content) == file["size_bytes"]
    for name in ("model.safetensors", "..%2f..%2fdata%2fmint.db", "config.json"):
        answer = house.http.get(f"/api/v1/mint/tokenizer/{name}", params={"model": "tiny"})
        assert answer.status_code == 404, name


def test_a_tokenizer_of_an_unknown_model_is_refused_with_the_known_ones(house: House):
    answer = house.http.get("/api/v1/mint/tokenizer", params={"model": "other"})

    assert answer.status_code == 400
    assert "Available: tiny" in answer.json()["detail"]


def test_the_server_says_who_it_is(house: House):
    told = house.http.get("/api/v1/mint/server").json()

    assert told["name"] == "mint"
    assert "loss_temperature" in told["extensions"]
    assert [model["name"] for model in told["models"]] == ["tiny"]
    assert str(house.data.parent) not in str(told)


def test_a_ready_model_is_described(house: House):
    model = house.model()
    [created] = house.store.pending()
    house.end(created.operation_id, ModelReady(base_model="tiny", lora=LoraSpec()))

    told = house.post("get_info", model_id=model).json()

    assert told["model_data"]["model_name"] == "tiny"
    assert told["lora_rank"] == 32
