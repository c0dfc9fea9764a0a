"""Every route of the app, asked with a second owner's key about the first one's things.

A route that is not in the tables below fails the test: whoever adds one says here what a stranger
gets from it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from tests.server.http.conftest import MODEL, House

from mint.core.ids import KeyId, ModelId, OperationId, Owner
from mint.core.lora import LoraSpec
from mint.core.operations import ModelReady
from mint.server.store.records import Effects, NewCheckpoint, Tokens
from mint.wire import payloads

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Things:
    """Names of what an owner has; `missing` has the same with nothing behind them."""

    session: str
    model: str
    sampler: str
    request: str
    name: str
    key: str

    @property
    def path(self) -> str:
        return f"tinker://{self.model}/weights/{self.name}"

    @property
    def checkpoint(self) -> str:
        return f"training_runs/{self.model}/checkpoints/weights/{self.name}"


MISSING = Things(
    session="f" * 32,
    model=f"{'f' * 32}:train:0",
    sampler=f"{'f' * 32}:sample:0",
    request="987654321",
    name="none",
    key="key-ffffffffffff",
)

Ask = Callable[[Things], tuple[str, dict[str, Any]]]
"""From an owner's things to a path below /api/v1/ and the arguments of a request."""


def at(path: str, /, **body: Any) -> Ask:
    """A request whose path and JSON body name things as "{model}", "{path}", …"""

    def ask(things: Things) -> tuple[str, dict[str, Any]]:
        def fill(value: Any) -> Any:
            if isinstance(value, str):
                return value.format(**{n: getattr(things, n) for n in _NAMES})
            return value

        return fill(path), {"json": {key: fill(value) for key, value in body.items()}}

    return ask


_NAMES = ("session", "model", "sampler", "request", "name", "key", "path", "checkpoint")
PASS = {"data": [], "loss_fn": "cross_entropy"}
HOURS = "?starting_on=2020-01-01T00:00:00Z&ending_before=2100-01-01T00:00:00Z"

ONE = {
    ("POST", "/api/v1/session_heartbeat"): at("session_heartbeat", session_id="{session}"),
    ("POST", "/api/v1/sessions/{session_id}/finish"): at("sessions/{session}/finish"),
    ("PUT", "/api/v1/sessions/{session_id}/project"): at(
        "sessions/{session}/project", project_id="mine"
    ),
    ("GET", "/api/v1/sessions/{session_id}/trace_export"): at("sessions/{session}/trace_export"),
    ("GET", "/api/v1/sessions/{session_id}"): at("sessions/{session}"),
    ("POST", "/api/v1/create_model"): at(
        "create_model", session_id="{session}", model_seq_id=7, base_model=MODEL
    ),
    ("POST", "/api/v1/get_info"): at("get_info", model_id="{model}"),
    ("POST", "/api/v1/unload_model"): at("unload_model", model_id="{model}"),
    ("POST", "/api/v1/forward_backward"): at(
        "forward_backward", model_id="{model}", seq_id=9, forward_backward_input=PASS
    ),
    ("POST", "/api/v1/forward"): at("forward", model_id="{model}", seq_id=9, forward_input=PASS),
    ("POST", "/api/v1/mint/forward_backward_reverse_kl"): at(
        "mint/forward_backward_reverse_kl",
        model_id="{model}",
        seq_id=9,
        reference_model_path=MODEL,
        data=[],
    ),
    ("POST", "/api/v1/optim_step"): at("optim_step", model_id="{model}", seq_id=9),
    ("POST", "/api/v1/save_weights"): at(
        "save_weights", model_id="{model}", path="{name}", seq_id=9
    ),
    ("POST", "/api/v1/save_weights_for_sampler"): at(
        "save_weights_for_sampler", model_id="{model}", sampling_session_seq_id=9, seq_id=9
    ),
    ("POST", "/api/v1/save_weights_external"): at(
        "save_weights_external", model_id="{model}", path="x", seq_id=9
    ),
    ("POST", "/api/v1/load_weights"): at(
        "load_weights", model_id="{model}", path="{path}", seq_id=9
    ),
    ("POST", "/api/v1/copy_weights"): at(
        "copy_weights", source_path="{path}", destination_project_id="mine"
    ),
    ("POST", "/api/v1/weights_info"): at("weights_info", tinker_path="{path}"),
    ("POST", "/api/v1/create_sampling_session"): at(
        "create_sampling_session",
        session_id="{session}",
        sampling_session_seq_id=0,
        base_model=MODEL,
    ),
    ("POST", "/api/v1/join_sampling_session"): at(
        "join_sampling_session", sampling_session_id="{sampler}"
    ),
    ("GET", "/api/v1/samplers/{sampler_id}"): at("samplers/{sampler}"),
    ("POST", "/api/v1/asample"): at(
        "asample", sampling_session_id="{sampler}", seq_id=0, prompt={"chunks": []}
    ),
    ("POST", "/api/v1/retrieve_future"): at("retrieve_future", request_id="{request}"),
    ("POST", "/api/v1/cancel_future"): at("cancel_future", request_id="{request}"),
    ("GET", "/api/v1/training_runs/{model_id}"): at("training_runs/{model}"),
    ("GET", "/api/v1/training_runs/{model_id}/checkpoints"): at(
        "training_runs/{model}/checkpoints"
    ),
    **{
        (method, f"/api/v1/training_runs/{{model_id}}/checkpoints/{{kind}}/{{name}}{end}"): at(
            f"{{checkpoint}}{end}"
        )
        for method, end in (
            ("GET", "/archive"),
            ("GET", "/external_weights_urls"),
            ("DELETE", ""),
            ("POST", "/publish"),
            ("DELETE", "/publish"),
            ("PUT", "/ttl"),
        )
    },
    ("GET", "/api/v1/mint/checkpoint"): at("mint/checkpoint?path={path}"),
    ("DELETE", "/api/v1/mint/checkpoint"): at("mint/checkpoint?path={path}"),
    ("GET", "/api/v1/mint/checkpoint/{name}"): at("mint/checkpoint/manifest.json?path={path}"),
    ("DELETE", "/api/v1/mint/keys/{key_id}"): at("mint/keys/{key}"),
}
"""About one thing: 404, in the words in which a thing is denied that does not exist."""

MANY = {
    ("GET", "/api/v1/sessions"): at("sessions"),
    ("POST", "/api/v1/sessions/search"): at("sessions/search", owner={"type": "accessible"}),
    ("GET", "/api/v1/training_runs"): at("training_runs?access_scope=accessible"),
    ("GET", "/api/v1/checkpoints"): at("checkpoints"),
    ("GET", "/api/v1/mint/checkpoints"): at("mint/checkpoints"),
    ("GET", "/api/v1/billing/usage/events"): at(f"billing/usage/events{HOURS}"),
    ("GET", "/api/v1/billing/usage/checkpoints/current"): at("billing/usage/checkpoints/current"),
    ("GET", "/api/v1/mint/usage"): at("mint/usage"),
    ("GET", "/api/v1/mint/status"): at("mint/status"),
}
"""Listings: answered, with nothing of the other owner's in them."""

SAME = {
    ("POST", "/api/v1/client/config"): at("client/config"),
    ("POST", "/api/v1/client/dynamic_config"): at("client/dynamic_config"),
    ("GET", "/api/v1/get_server_capabilities"): at("get_server_capabilities"),
    ("POST", "/api/v1/telemetry"): at("telemetry", session_id="{session}"),
    ("GET", "/api/v1/auth/apikey/me"): at("auth/apikey/me"),
    ("DELETE", "/api/v1/auth/apikey/me"): at("auth/apikey/me"),
    ("POST", "/api/v1/auth/token"): at("auth/token"),
    ("GET", "/api/v1/audit"): at("audit"),
    ("POST", "/api/v1/create_custom_loss"): at("create_custom_loss", session_id="{session}"),
    ("POST", "/api/v1/retrieve_futures"): at("retrieve_futures", sampling_session_id="{sampler}"),
    ("POST", "/api/v1/create_session"): at("create_session"),
    ("GET", "/api/v1/mint/server"): at("mint/server"),
    ("GET", "/api/v1/mint/tokenizer"): at(f"mint/tokenizer?model={MODEL}"),
    ("GET", "/api/v1/mint/tokenizer/{name}"): at(f"mint/tokenizer/tokenizer.json?model={MODEL}"),
    ("POST", "/api/v1/mint/checkpoints"): at("mint/checkpoints"),
    # told by its result, as that of any accepted work: test_own_operations.py
    ("POST", "/api/v1/mint/checkpoints/interpolate"): at(
        "mint/checkpoints/interpolate", source_paths=[], coefficients=[]
    ),
    ("GET", "/healthz"): at("../../healthz"),
    ("GET", "/api/v1/healthz"): at("healthz"),
    **{
        (method, "/api/v1/{path:path}"): at("nothing/{model}")
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    },
    ("GET", "/download/{token}/{name}"): at("../../download/x.y/{name}"),
}
"""About nobody's things: the owner's names are in no answer, beyond those the question had."""

FIGURES = ("GET", "/metrics")
"""Whom they name, and to whom: test_status.py. (Any word of digits may be among them.)"""


@pytest.fixture
def things(house: House) -> Things:
    """What the first owner has: a bit of everything."""
    session = house.session()
    model, sampler = house.model(session), house.sampler(session)
    request = house.sample(sampler).json()["request_id"]
    [key] = [key for key in house.store.list_keys() if key.owner == house.owner]
    things = Things(session, model, sampler, request, f"secret-{next(_NUMBERS)}", key.key_id)
    [created, _] = house.store.pending()
    ready = payloads.encode_result(ModelReady(base_model=MODEL, lora=LoraSpec()))
    house.store.finish(created.operation_id, ready, effects=Effects(tokens=Tokens(trained=77)))
    add_checkpoint(house, things)
    return things


def add_checkpoint(house: House, things: Things) -> None:
    folder = house.data / "checkpoints" / things.name
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"files": {}}')
    saved = house.post("save_weights", model_id=things.model, path=things.name, seq_id=1).json()
    checkpoint = NewCheckpoint(
        path=things.path,
        owner=house.owner,
        model_id=ModelId(things.model),
        kind="weights",
        name=things.name,
        base_model=MODEL,
        lora=LoraSpec(),
        folder=f"checkpoints/{things.name}",
        size_bytes=12345,
    )
    house.store.finish(
        OperationId(saved["request_id"]), b"{}", effects=Effects(checkpoint=checkpoint)
    )


@pytest.fixture
def stranger(house: House) -> Iterator[httpx.Client]:
    with house.client(house.new_key(f"stranger-{next(_NUMBERS)}")) as client:
        yield client


def send(client: httpx.Client, method: str, ask: Ask, things: Things) -> httpx.Response:
    path, arguments = ask(things)
    return client.request(method, f"/api/v1/{path}", **arguments)


def told(things: Things, owner: Owner, ask: Ask) -> list[str]:
    """Words that may not come back: the owner's, unless the question itself had them."""
    path, arguments = ask(things)
    asked = f"{path} {arguments}"
    words = (owner, things.session, things.model, things.sampler, things.name, things.key, "12345")
    return [word for word in words if word not in asked]


def every_route(routes: Iterable[Any]) -> Iterator[APIRoute]:
    """Those of the routers that are part of the app too, however FastAPI keeps them."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        else:
            inner = getattr(route, "original_router", route)
            yield from every_route(getattr(inner, "routes", ()))


def test_every_route_is_in_one_of_the_tables(house: House):
    routes = {
        (method, route.path)
        for route in every_route(house.app.routes)
        for method in route.methods or ()
    }

    assert routes == {*ONE, *MANY, *SAME, FIGURES}
    assert len(routes) == len(ONE) + len(MANY) + len(SAME) + 1


@pytest.mark.parametrize(("method", "route"), ONE)
def test_a_stranger_is_told_of_a_thing_as_if_it_did_not_exist(
    house: House, things: Things, stranger: httpx.Client, method: str, route: str
):
    ask = ONE[method, route]

    about = send(stranger, method, ask, things)
    of_nothing = send(stranger, method, ask, MISSING)

    assert about.status_code == of_nothing.status_code == 404
    assert generic(about.text, things) == generic(of_nothing.text, MISSING)
    assert not [word for word in told(things, house.owner, ask) if word in about.text]


@pytest.mark.parametrize(("method", "route"), [*MANY, *SAME])
def test_a_stranger_finds_nothing_of_anothers_in_what_all_may_ask(
    house: House, things: Things, stranger: httpx.Client, method: str, route: str
):
    ask = (MANY | SAME)[method, route]

    answer = send(stranger, method, ask, things)

    assert answer.status_code == 200 or (method, route) in SAME
    assert answer.status_code < 500
    assert not [word for word in told(things, house.owner, ask) if word in answer.text]


def test_strangers_change_nothing(house: House, things: Things, stranger: httpx.Client):
    waiting = [row.operation_id for row in house.store.pending()]
    for (method, _), ask in ONE.items():
        send(stranger, method, ask, things)

    assert [row.operation_id for row in house.store.pending()] == waiting
    assert house.store.checkpoint(house.owner, things.path).is_public is False
    assert (house.data / "checkpoints" / things.name / "manifest.json").exists()
    assert house.http.get(f"/api/v1/sessions/{things.session}").json()["sampler_ids"]
    assert house.store.key(KeyId(things.key)).revoked_at is None


ELSEWHERE: Mapping[str, dict[str, str]] = {
    "load_weights": {"path": "{path}", "session_id": "{own}", "model_seq_id": "{seq}"},
    "save_weights_for_sampler": {"model_id": "{model}", "sampling_session_seq_id": "{seq}"},
    "copy_weights": {"source_path": "{path}", "session_id": "{own}", "model_seq_id": "{seq}"},
    "create_sampling_session": {
        "session_id": "{own}",
        "sampling_session_seq_id": "{seq}",
        "model_path": "{path}",
    },
}


@pytest.mark.parametrize("route", ELSEWHERE)
def test_anothers_checkpoint_cannot_be_used_in_an_own_session(
    house: House, things: Things, stranger: httpx.Client, route: str
):
    own = stranger.post("/api/v1/create_session", json={}).json()["session_id"]

    def ask(about: Things) -> str:
        words = {"own": own, "path": about.path, "model": about.model, "seq": next(_NUMBERS)}
        body = {key: value.format(**words) for key, value in ELSEWHERE[route].items()}
        answer = stranger.post(f"/api/v1/{route}", json=body).json()
        if "request_id" in answer:
            polled = stranger.post("/api/v1/retrieve_future", json=answer)
            answer = {"detail": polled.json()["error"]}
        return generic(answer["detail"], about)

    denied = ask(MISSING)
    assert denied.startswith("there is no")
    assert ask(things) == denied


def generic(text: str, things: Things) -> str:
    """An answer without the names that the question had."""
    for name in _NAMES:
        text = text.replace(getattr(things, name), "<name>")
    return text
