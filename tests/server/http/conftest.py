"""The real app over loopback, with a real store and a link whose engine the test plays."""

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from tests.server.still_link import StillLink

from mint.core.errors import Fault
from mint.core.ids import OperationId, Owner
from mint.core.models import ServedModel
from mint.core.operations import Failure, Result
from mint.server.app import create_app
from mint.server.auth.keys import hash_secret, hint, new_secret
from mint.server.http import futures
from mint.server.service import janitor
from mint.server.settings import ServerSettings
from mint.server.store.store import Store
from mint.wire import payloads

MODEL = "tiny"
_COUNT = itertools.count()


@dataclass
class House:
    """The app as it runs, and what stands behind it."""

    app: FastAPI
    store: Store
    link: StillLink
    data: Path
    url: str
    owner: Owner
    key: str = field(init=False)
    http: httpx.Client = field(init=False)

    def open_sessions(self) -> list[str]:
        """The owner's."""
        found = self.store.silent_sessions(datetime.max.replace(tzinfo=UTC))
        return [session.session_id for session in found if session.owner == self.owner]

    def __post_init__(self) -> None:
        self.key = self.new_key(self.owner)
        self.http = self.client(self.key)

    def client(self, key: str) -> httpx.Client:
        """One that loads no certificates: that took longer than most tests do, and this is loopback."""
        return httpx.Client(base_url=self.url, headers={"X-API-Key": key}, timeout=30, verify=False)

    def new_key(self, owner: str, *, is_admin: bool = False) -> str:
        secret = new_secret()
        self.store.create_key(Owner(owner), owner, hash_secret(secret), hint(secret), is_admin)
        return secret

    def post(self, path: str, http: httpx.Client | None = None, /, **body: Any) -> httpx.Response:
        return (http or self.http).post(f"/api/v1/{path}", json=body)

    def poll(self, request_id: str, **headers: str) -> httpx.Response:
        return self.http.post(
            "/api/v1/retrieve_future", json={"request_id": request_id}, headers=headers
        )

    def end(self, request_id: str, result: Result | Failure) -> None:
        """Play the engine process: end an operation."""
        operation_id = OperationId(request_id)
        if isinstance(result, Failure):
            self.store.finish(operation_id, None, result)
        else:
            self.store.finish(operation_id, payloads.encode_result(result))
        self.link.announce_from_thread(operation_id)

    # --------------------------------------------------- what most tests need

    def session(self) -> str:
        return self.post("create_session", sdk_version="0.38.0").json()["session_id"]

    def model(self, session: str | None = None, seq: int = 0) -> str:
        """A model whose creation is still queued."""
        session = session or self.session()
        answer = self.post(
            "create_model", session_id=session, model_seq_id=seq, base_model=MODEL
        ).json()
        return answer["model_id"]

    def sampler(self, session: str | None = None) -> str:
        return self.post(
            "create_sampling_session",
            session_id=session or self.session(),
            sampling_session_seq_id=0,
            base_model=MODEL,
        ).json()["sampling_session_id"]

    def sample(self, sampler: str, seq: int = 0, **fields: Any) -> httpx.Response:
        prompt = {"chunks": [{"tokens": [1, 2, 3], "type": "encoded_text"}]}
        given = {"sampling_params": {"max_tokens": 4}, "prompt": prompt, **fields}
        return self.post("asample", sampling_session_id=sampler, seq_id=seq, **given)


@dataclass
class Running:
    """The app of this test run, shared by all tests."""

    app: FastAPI
    store: Store
    link: StillLink
    data: Path
    url: str


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("http")
    data, tokenizer = folder / "data", folder / "tokenizer"
    data.mkdir()
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text('{"model": {}}')
    (tokenizer / "model.safetensors").write_text("weights are not handed out")
    # A round in the middle of a test would queue what other tests left to be ended.
    patch = pytest.MonkeyPatch()
    patch.setattr(janitor, "ROUND_S", 3600.0)
    settings = ServerSettings(data=data, models=(MODEL,), max_pending_samples=3)
    store = Store(settings.store_at)
    store.set_served([_served(tokenizer)])
    link = StillLink()
    app = create_app(settings, store, link)  # type: ignore[arg-type]
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Running(app, store, link, data, f"http://127.0.0.1:{port}")
    server.should_exit = True
    thread.join()
    store.close()
    patch.undo()


@pytest.fixture
def house(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """The app with an empty queue and an owner of this test's own."""
    # Polls of unfinished work answer soon; woken ones answer at once whatever this is.
    monkeypatch.setattr(futures, "HOLD_S", 0.2)
    running.link.reset()
    owner = Owner(f"anne-{next(_COUNT)}")
    house = House(running.app, running.store, running.link, running.data, running.url, owner)
    yield house
    monkeypatch.undo()
    house.http.close()
    for row in [*running.store.pending(), *running.store.running()]:
        running.store.finish(row.operation_id, None, Failure("the test is over", Fault.SERVER))


def _served(folder: Path) -> ServedModel:
    return ServedModel(
        name=MODEL,
        architecture="llama",
        vocab_size=100,
        max_context=16,
        parameters=1000,
        dtype="float32",
        device="cpu",
        tokenizer_folder=str(folder),
    )
