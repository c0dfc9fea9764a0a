"""Runs, checkpoints, sessions and usage, as people look after them."""

import io
import tarfile
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx
import pytest
from tests.server.http.conftest import House
from tests.server.http.saved import ready_model, saved

from mint.core.errors import Fault
from mint.core.ids import OperationId
from mint.core.operations import Failure
from mint.server.store.records import Effects, Tokens

OLD = {"User-Agent": "AsyncTinker/Python 0.25.0"}
NEW = {"User-Agent": "AsyncTinker/Python 0.38.0"}


def below(path: str) -> str:
    """Where a checkpoint's routes are."""
    model, kind, name = path.removeprefix("tinker://").split("/")
    return f"/api/v1/training_runs/{model}/checkpoints/{kind}/{name}"


def listed(house: House, **params: str | int) -> list[dict]:
    return house.http.get("/api/v1/checkpoints", params=params).json()["checkpoints"]


# ------------------------------------------------------------ sharing and ends


def test_a_published_checkpoint_can_be_used_by_others_until_it_is_hidden(house: House):
    path = saved(house, ready_model(house), "a")
    other = house.client(house.new_key("other"))

    for _ in range(2):  # the second time says what is so already
        assert house.http.post(f"{below(path)}/publish").status_code == 204
    assert listed(house)[0]["public"] is True
    assert house.post("weights_info", other, tinker_path=path).status_code == 200
    assert other.get(f"{below(path)}/archive").status_code == 302
    assert other.delete(below(path)).status_code == 404
    assert other.get("/api/v1/checkpoints").json()["checkpoints"] == []

    for _ in range(2):
        assert house.http.delete(f"{below(path)}/publish").status_code == 204
    assert house.post("weights_info", other, tinker_path=path).status_code == 404


def test_an_end_can_be_set_and_taken_away(house: House):
    path = saved(house, ready_model(house), "a")

    assert house.http.put(f"{below(path)}/ttl", json={"ttl_seconds": 7200}).status_code == 204
    ends = datetime.fromisoformat(listed(house)[0]["expires_at"])
    assert timedelta(minutes=115) < ends - datetime.now(UTC) < timedelta(minutes=125)
    assert house.http.put(f"{below(path)}/ttl", json={"ttl_seconds": None}).status_code == 204
    assert listed(house)[0]["expires_at"] is None


@pytest.mark.parametrize("ttl", [0, -1, 1 << 62])
def test_an_end_that_cannot_be_is_refused(house: House, ttl: int):
    path = saved(house, ready_model(house), "a")

    answer = house.http.put(f"{below(path)}/ttl", json={"ttl_seconds": ttl})

    assert answer.status_code == 400
    assert f"ttl_seconds={ttl}" in answer.json()["detail"]


# ----------------------------------------------------------------- downloads


def test_an_archive_is_a_tar_behind_a_link_that_needs_no_key(house: House):
    path = saved(house, ready_model(house), "a")

    answer = house.http.get(f"{below(path)}/archive")
    expires = parsedate_to_datetime(answer.headers["expires"])
    tar = httpx.get(answer.headers["location"])

    assert answer.status_code == 302
    assert timedelta(minutes=50) < expires - datetime.now(UTC) <= timedelta(hours=1)
    assert int(tar.headers["content-length"]) == len(tar.content)
    with tarfile.open(fileobj=io.BytesIO(tar.content)) as opened:
        sizes = {member.name: member.size for member in opened.getmembers()}
        weights = opened.extractfile("adapter_model.safetensors")
        assert weights is not None
        assert weights.read() == b"a" * 3000
    assert sizes == {"adapter_model.safetensors": 3000, "manifest.json": 2}


def test_each_file_of_a_checkpoint_has_a_link_of_its_own(house: House):
    path = saved(house, ready_model(house), "x", "external_weights")

    told = house.http.get(f"{below(path)}/external_weights_urls").json()

    assert datetime.fromisoformat(told["expires"]) > datetime.now(UTC)
    contents = {name: httpx.get(url).content for name, url in told["urls"].items()}
    assert contents == {"adapter_model.safetensors": b"a" * 3000, "manifest.json": b"{}"}


@pytest.mark.parametrize(
    "spoil", [lambda t: t[:-2], lambda t: "A" + t[1:], lambda t: "x", str.upper]
)
def test_a_link_that_was_changed_opens_nothing(house: House, spoil):
    path = saved(house, ready_model(house), "a")
    location = house.http.get(f"{below(path)}/archive").headers["location"]
    [token] = [part for part in location.split("/") if "." in part and len(part) > 30]

    answer = httpx.get(location.replace(token, spoil(token)))

    assert answer.status_code == 401
    assert "link" in answer.json()["detail"]


def test_a_link_ends_with_its_checkpoint(house: House):
    path = saved(house, ready_model(house), "a")
    location = house.http.get(f"{below(path)}/archive").headers["location"]
    house.http.delete(below(path))

    assert httpx.get(location).status_code == 404


def test_a_link_to_a_checkpoint_hidden_meanwhile_opens_nothing(house: House):
    path = saved(house, ready_model(house), "a")
    house.http.post(f"{below(path)}/publish")
    location = house.client(house.new_key("o")).get(f"{below(path)}/archive").headers["location"]
    house.http.delete(f"{below(path)}/publish")

    assert httpx.get(location).status_code == 404


# ------------------------------------------------------------------- listings


def test_listings_tell_the_total_whatever_part_is_shown(house: House):
    session = house.session()
    models = [ready_model(house, session, seq) for seq in range(3)]
    paths = [saved(house, models[0], name) for name in "abcd"]

    runs = house.http.get("/api/v1/training_runs", params={"limit": 2, "offset": 1}).json()
    page = house.http.get("/api/v1/checkpoints", params={"limit": 1, "offset": 2}).json()
    mine = house.http.get(f"/api/v1/training_runs/{models[0]}/checkpoints").json()

    assert runs["cursor"] == {"offset": 1, "limit": 2, "total_count": 3}
    assert len(runs["training_runs"]) == 2
    assert page["cursor"]["total_count"] == 4
    assert [c["tinker_path"] for c in page["checkpoints"]] == [paths[1]]
    assert [c["checkpoint_id"] for c in mine["checkpoints"]] == [
        f"weights/{name}" for name in "dcba"
    ]


def test_external_checkpoints_are_hidden_from_sdks_that_fail_on_them(house: House):
    model = ready_model(house)
    saved(house, model, "a")
    saved(house, model, "x", "external_weights")

    def kinds(path: str, headers: dict[str, str]) -> list[str]:
        told = house.http.get(path, headers=headers).json()
        assert told["cursor"]["total_count"] == len(told["checkpoints"])
        return sorted(checkpoint["checkpoint_type"] for checkpoint in told["checkpoints"])

    for path in ("/api/v1/checkpoints", f"/api/v1/training_runs/{model}/checkpoints"):
        assert kinds(path, OLD) == ["training"]
        assert kinds(path, NEW) == kinds(path, {}) == ["external", "training"]


def test_what_users_noted_comes_back_as_text(house: House):
    session = house.post("create_session", user_metadata={"step": 3, "who": "anne"}).json()

    told = house.http.get(f"/api/v1/sessions/{session['session_id']}").json()

    assert told["user_metadata"] == {"step": "3", "who": "anne"}


# --------------------------------------------------------------------- copies


def test_a_copy_outlives_its_source(house: House):
    path = saved(house, ready_model(house), "a", user_metadata={"k": "v"})
    copied = house.post(
        "copy_weights", source_path=path, destination_project_id="atlas", ttl_seconds=7200
    ).json()["tinker_path"]
    house.http.delete(below(path))

    [kept] = listed(house)
    assert kept["tinker_path"] == copied != path
    assert (kept["checkpoint_id"], kept["user_metadata"]) == ("weights/a", {"k": "v"})
    assert kept["expires_at"] is not None
    location = house.http.get(f"{below(copied)}/archive").headers["location"]
    assert b"a" * 3000 in httpx.get(location).content
    [run] = house.http.get("/api/v1/training_runs", params={"project_id": "atlas"}).json()[
        "training_runs"
    ]
    assert run["user_metadata"] == {"copied_from": path}


def test_the_retry_of_a_lost_answer_makes_no_second_copy(house: House):
    path = saved(house, ready_model(house), "a")
    body = {"source_path": path, "destination_project_id": "atlas"}

    def copy(key: str) -> str:
        headers = {"X-Idempotency-Key": key}
        answer = house.http.post("/api/v1/copy_weights", json=body, headers=headers)
        return answer.json()["tinker_path"]

    assert copy("one") == copy("one") != copy("two")
    assert len(listed(house)) == 3


def test_a_copy_into_a_session_takes_the_run_it_was_given(house: House):
    source, session = saved(house, ready_model(house), "a", "sampler_weights"), house.session()
    body = {"source_path": source, "session_id": session, "model_seq_id": 4}

    copied = house.post("copy_weights", **body).json()["tinker_path"]

    assert copied == f"tinker://{session}:train:4/sampler_weights/a"
    assert house.post("copy_weights", **body).json()["tinker_path"] == copied
    other = saved(house, ready_model(house), "b")
    taken = house.post("copy_weights", **{**body, "source_path": other})
    assert taken.status_code == 400
    assert "taken" in taken.json()["detail"]


def test_a_public_checkpoint_of_another_owner_can_be_copied(house: House):
    path = saved(house, ready_model(house), "a")
    house.http.post(f"{below(path)}/publish")
    other = house.client(house.new_key("copier"))

    copied = house.post("copy_weights", other, source_path=path, destination_project_id="p").json()

    [own] = other.get("/api/v1/checkpoints").json()["checkpoints"]
    assert own["tinker_path"] == copied["tinker_path"]
    assert own["public"] is False


@pytest.mark.parametrize(
    ("body", "headers", "says"),
    [
        ({}, {}, "destination_project_id"),
        ({"session_id": "s"}, {}, "destination_project_id"),
        ({"destination_project_id": "p"}, {"X-Tinker-Weights-Access-Token": "t"}, "not offered"),
        ({"destination_project_id": "p", "ttl_seconds": -1}, {}, "ttl_seconds"),
    ],
)
def test_a_copy_that_cannot_be_is_refused(house: House, body: dict, headers: dict, says: str):
    given = {"source_path": saved(house, ready_model(house), "a"), **body}

    answer = house.http.post("/api/v1/copy_weights", json=given, headers=headers)

    assert answer.status_code == 400
    assert says in answer.json()["detail"]


# ------------------------------------------------------------------- sessions


def test_sessions_are_found_page_by_page(house: House):
    ids = [house.session() for _ in range(5)]
    found, cursor = [], None
    while True:
        page = house.post("sessions/search", limit=2, cursor=cursor).json()
        found += [session["session_id"] for session in page["sessions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert found == ids[::-1]


def test_sessions_are_found_by_name_project_notes_and_status(house: House):
    def opened(**body) -> str:
        return house.post("create_session", **body).json()["session_id"]

    nightly = opened(display_name="Nightly run 7", project_id="atlas")
    noted = opened(user_metadata={"team": "blue"})
    house.post(f"sessions/{noted}/finish", reason={"type": "errored"}, detail="oops")

    def found(**query) -> list[str]:
        page = house.post("sessions/search", **query).json()
        return [session["session_id"] for session in page["sessions"]]

    assert found(display_name="RUN nightly") == [nightly]
    assert found(display_name="nightly 8") == []
    assert found(session_id=noted) == [noted]
    assert set(found(session_id=noted, display_name="nightly")) == {noted, nightly}
    assert found(project_ids=["atlas"]) == [nightly]
    assert found(user_metadata={"team": "blue"}) == [noted]
    assert found(statuses=[{"type": "active"}]) == [nightly]
    assert found(statuses=[{"type": "client_finished", "reasons": ["errored"]}]) == [noted]
    assert found(statuses=[{"type": "client_finished", "reasons": ["success"]}]) == []
    assert found(owner={"type": "user", "owner_urns": ["somebody"]}) == []
    [told] = house.post("sessions/search", session_id=noted).json()["sessions"]
    assert told["status"] == {
        "type": "client_finished",
        "reason": {"type": "errored"},
        "detail": "oops",
    }


def test_a_session_moves_into_a_project(house: House):
    session = house.session()
    ready_model(house, session)

    moved = house.http.put(f"/api/v1/sessions/{session}/project", json={"project_id": "atlas"})

    assert moved.status_code == 204
    runs = house.http.get("/api/v1/training_runs", params={"project_id": "atlas"}).json()
    assert runs["cursor"]["total_count"] == 1


@pytest.mark.parametrize(
    ("version", "level", "says"),
    [("0.5.1", "error", "older"), ("0.41.0", "warning", "newer"), ("1.0", "warning", "newer")],
)
def test_an_sdk_outside_the_window_is_told_both_versions(
    house: House, version: str, level: str, says: str
):
    told = house.post("create_session", sdk_version=version).json()[f"{level}_message"]

    assert told.startswith(f"tinker {version} is {says}")
    assert "0.6 to 0.38" in told


@pytest.mark.parametrize("version", ["0.6.0", "0.16.1", "0.38.0", "", "main"])
def test_an_sdk_within_the_window_is_told_nothing(house: House, version: str):
    told = house.post("create_session", sdk_version=version).json()

    assert set(told) == {"session_id", "type"}


# ---------------------------------------------------------------- not offered


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "auth/token"),
        ("GET", "audit"),
        ("POST", "create_custom_loss"),
        ("POST", "retrieve_futures"),
    ],
)
def test_what_is_not_supported_says_so_in_a_status_that_is_not_retried(
    house: House, method: str, path: str
):
    answer = house.http.request(method, f"/api/v1/{path}", json={})

    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("not supported")


def test_a_trace_is_a_failed_export_rather_than_a_refusal(house: House):
    told = house.http.get(f"/api/v1/sessions/{house.session()}/trace_export").json()

    assert told["status"] == "failed"
    assert told["error"].startswith("not supported")


def test_encrypted_checkpoints_are_refused_by_the_save(house: House):
    request = house.post(
        "save_weights_external",
        model_id=ready_model(house),
        path="x",
        seq_id=1,
        age_encryption_recipients=["age1xyz"],
    ).json()

    assert "encrypted" in house.poll(request["request_id"]).json()["error"]


def test_clones_of_a_sampling_client_get_numbers_that_never_meet(house: House):
    sampler = house.sampler()

    numbers = [
        house.post("join_sampling_session", sampling_session_id=sampler).json()["client_counter"]
        for _ in range(2)
    ]

    assert numbers == [1, 2]


# ---------------------------------------------------------------------- usage


def use(house: House, tokens: Tokens) -> None:
    """Play the engine process: something of that size was computed."""
    model = ready_model(house)
    request = house.post("optim_step", model_id=model, seq_id=1).json()["request_id"]
    house.store.finish(OperationId(request), b"{}", effects=Effects(tokens=tokens))
    failed = house.post("optim_step", model_id=model, seq_id=2).json()["request_id"]
    house.store.finish(OperationId(failed), None, Failure("no", Fault.USER))


def test_everybody_sees_their_own_usage_and_an_admin_all(house: House):
    use(house, Tokens(trained=10, prompt=20, sampled=30))
    saved(house, ready_model(house), "a")
    admin, other = house.new_key("root", is_admin=True), house.new_key("nobody")

    def owners(key: str) -> dict[str, dict]:
        with house.client(key) as client:
            told = client.get("/api/v1/mint/usage").json()["owners"]
        return {owner["owner"]: owner for owner in told}

    mine = owners(house.key)
    assert set(mine) == {house.owner}
    [key] = mine[house.owner]["keys"]
    # two creations, two steps, one save
    assert (key["used"]["operations"], key["used"]["failed"]) == (5, 1)
    assert key["used"]["trained_tokens"] == 10
    assert key["used"]["prompt_tokens"] == 20
    assert key["used"]["sampled_tokens"] == 30
    assert key["last_seen_at"] is not None
    assert mine[house.owner]["storage"] == {"checkpoints": 1, "size_bytes": 3002}
    assert {house.owner, "root", "nobody"} <= set(owners(admin))
    assert set(owners(other)) == {"nobody"}
    assert house.key not in str(owners(admin))


def test_usage_by_the_hour_comes_in_the_sdks_words(house: House):
    use(house, Tokens(trained=10, sampled=30))
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    window = {
        "starting_on": (hour - timedelta(hours=1)).isoformat(),
        "ending_before": (hour + timedelta(hours=1)).isoformat(),
    }

    events = house.http.get("/api/v1/billing/usage/events", params=window).json()["data"]

    assert [event["event_info"] for event in events] == [
        {"type": "training", "token_count": 10},
        {"type": "sampling_sample", "token_count": 30},
    ]
    assert {event["base_model"] for event in events} == {"tiny"}
    before = {**window, "ending_before": window["starting_on"]}
    assert house.http.get("/api/v1/billing/usage/events", params=before).json()["data"] == []


def test_storage_is_told_by_project(house: House):
    session = house.post("create_session", project_id="atlas").json()["session_id"]
    saved(house, ready_model(house, session), "a")
    saved(house, ready_model(house), "b")

    def told(**params: str) -> list[tuple[str | None, int]]:
        answer = house.http.get("/api/v1/billing/usage/checkpoints/current", params=params).json()
        return [(item["project_id"], item["size_bytes"]) for item in answer["data"]]

    assert set(told()) == {("atlas", 3002), (None, 3002)}
    assert told(project_id="atlas") == [("atlas", 3002)]


def test_a_key_tells_whose_it_is_and_can_give_itself_up(house: House):
    key = house.new_key("leaver")
    with house.client(key) as client:
        told = client.get("/api/v1/auth/apikey/me").json()
        assert client.delete("/api/v1/auth/apikey/me").status_code == 204
        assert client.get("/api/v1/auth/apikey/me").status_code == 401

    assert (told["name"], told["details"]["user_details"]["email"]) == ("leaver", "leaver")
    assert isinstance(told["key_id"], int)
    assert key not in str(told)


def test_an_admin_revokes_keys_but_not_the_one_in_hand(house: House):
    admin = house.client(house.new_key("chief", is_admin=True))
    ids = {str(key.owner): key.key_id for key in house.store.list_keys()}

    for _ in range(2):
        assert admin.delete(f"/api/v1/mint/keys/{ids[house.owner]}").status_code == 204
    assert house.http.get("/api/v1/sessions").status_code == 401
    for path in (f"mint/keys/{ids['chief']}", "auth/apikey/me"):
        refused = admin.delete(f"/api/v1/{path}")
        assert refused.status_code == 400
        assert "last way in" in refused.json()["detail"]
    assert admin.delete("/api/v1/mint/keys/key-unknown").status_code == 404
