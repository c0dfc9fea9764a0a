"""What is told of the server's work, and to whom."""

import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.http.conftest import House

from mint.core.errors import Fault
from mint.core.ids import Owner
from mint.core.operations import Failure
from mint.server.auth.keys import hash_secret, hint, new_secret


@pytest.fixture
def admin(house: House):
    secret = new_secret()
    house.store.create_key(Owner("root"), "root", hash_secret(secret), hint(secret), True)
    with house.client(secret) as http:
        yield http


@pytest.fixture
def stranger(house: House):
    with house.client(house.new_key(f"stranger-of-{house.owner}")) as http:
        yield http


def status(http: httpx.Client) -> dict:
    answer = http.get("/api/v1/mint/status")
    assert answer.status_code == 200
    return answer.json()


def metrics(http: httpx.Client, **headers: str) -> dict[tuple[str, ...], float]:
    """Samples by (name, label values in order of their names), parsed as Prometheus does."""
    answer = http.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_the_owner_sees_own_sessions_models_and_queue(house: House, stranger: httpx.Client):
    session = house.session()
    model = house.model(session)
    sampler = house.sampler(session)
    for n in range(2):
        house.sample(sampler, n)
    seen = status(house.http)

    assert (seen["sees"], seen["engine"]["state"], seen["waiting_of_others"]) == ("own", "up", 0)
    assert [one["session_id"] for one in seen["sessions"]] == [session]
    assert [(one["model_id"], one["state"]) for one in seen["models"]] == [(model, "creating")]
    lines = [(line["kind"], line["model_id"], line["count"]) for line in seen["queue"]]
    assert lines == [("CreateModel", model, 1), ("Sample", None, 2)]
    assert all(line["oldest_s"] >= 0 for line in seen["queue"])

    of_stranger = status(stranger)
    assert (of_stranger["sessions"], of_stranger["models"], of_stranger["queue"]) == ([], [], [])
    assert of_stranger["waiting_of_others"] == 3
    assert str(house.owner) not in str(of_stranger).replace(f"stranger-of-{house.owner}", "")


def test_an_admin_sees_everybody(house: House, admin: httpx.Client):
    house.sample(house.sampler())
    seen = status(admin)

    assert seen["sees"] == "all"
    assert house.owner in {line["owner"] for line in seen["queue"]}
    assert house.owner in {one["owner"] for one in seen["sessions"]}
    assert seen["engine"]["pid"] == 1


def test_status_needs_a_key(house: House):
    assert httpx.get(f"{house.url}/api/v1/mint/status").status_code == 401


def test_what_is_counted_on_the_servers_own_machine(house: House):
    house.end(house.sample(house.sampler()).json()["request_id"], Failure("no", Fault.USER))
    house.sample(house.sampler())
    with httpx.Client(base_url=house.url) as nobody:
        seen = metrics(nobody)

    assert seen["mint_engine_up",] == 1
    assert (seen["mint_engine_memory_bytes",], seen["mint_engine_memory_limit_bytes",]) == (
        1000, 4000,
    )  # fmt: skip
    assert seen["mint_engine_running_sequences",] == 3
    assert seen["mint_engine_loaded_model", "tiny"] == 1
    assert seen["mint_engine_info", "cuda:0", "bfloat16", "6"] == 1
    assert seen["mint_engine_busy_seconds_total",] == 1.5
    assert seen["mint_engine_cached_tokens",] == 320
    assert seen["mint_engine_prompt_tokens_total",] == 900
    assert seen["mint_engine_reused_prompt_tokens_total",] == 600
    assert seen["mint_engine_sequences_set_back_total",] == 5
    assert seen["mint_queue_depth",] == 1
    assert seen["mint_operations", "Sample", "pending"] == 1
    assert seen["mint_operations", "Sample", "failed"] >= 1
    assert seen["mint_operations_ended_total", "failed"] >= 1
    assert seen["mint_tokens_total", "sampled"] >= 0
    assert seen["mint_process_resident_bytes", "api"] > 1_000_000
    assert seen["mint_http_requests_total", "POST", "/api/v1/asample", "200"] >= 2
    assert seen["mint_http_request_seconds_count", "POST", "/api/v1/asample"] >= 2


def test_a_dead_engine_is_a_figure_too(house: House):
    house.link.state = house.link.state.__class__.DOWN

    assert metrics(house.http)["mint_engine_up",] == 0


def test_paths_and_ids_are_no_labels(house: House):
    house.http.get("/api/v1/training_runs/secret-name:train:0")
    house.http.get("/api/v1/no/such/secret-name")
    house.http.get("/secret-name")

    text = house.http.get("/metrics").text
    assert "secret-name" not in text
    assert 'route="/api/v1/{path:path}"' in text
    assert 'route="other"' in text


def test_only_an_admin_is_told_owners(house: House, admin: httpx.Client):
    house.end(house.sample(house.sampler()).json()["request_id"], Failure("no", Fault.USER))

    assert str(house.owner) not in house.http.get("/metrics").text
    assert metrics(admin)["mint_owner_operations_ended_total", "failed", str(house.owner)] == 1


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_what_a_proxy_brings_needs_an_admins_key(house: House, admin: httpx.Client, header: str):
    brought = {header: "127.0.0.1"}

    assert httpx.get(f"{house.url}/metrics", headers=brought).status_code == 404
    assert house.http.get("/metrics", headers=brought).status_code == 404
    assert admin.get("/metrics", headers=brought).status_code == 200


def test_figures_hold_no_secret(house: House, admin: httpx.Client):
    house.sample(house.sampler())

    for text in (admin.get("/metrics").text, admin.get("/api/v1/mint/status").text):
        assert not re.search(r"sk-|tml-", text)


def test_every_metric_is_described(admin: httpx.Client):
    page = (Path(__file__).parents[3] / "docs/en/operate.md").read_text()
    names = set(re.findall(r"^# TYPE (\S+) ", admin.get("/metrics").text, re.MULTILINE))

    assert {name for name in names if f"`{name}`" not in page} == set()
