"""A small HTTP server that answers as a training service does and remembers what it was asked.

For what only the client decides: which URL, which key, which bytes. The model behind it is a
stub on purpose; tests/client/test_end_to_end.py uses the real server.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from mint.core.operations import SampleResult
from mint.core.sampling import SampledSequence, StopReason
from mint.wire.payloads import encode_result

MODEL = "acme/tiny"


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    key: str | None
    body: Any


@dataclass
class StubService:
    """Answers of a service; `ours` says whether it has the routes below /api/v1/mint/."""

    url: str = ""
    ours: bool = True
    asked: list[Asked] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    announced: list[dict[str, Any]] | None = None
    """What the tokenizer route lists, when that is not the truth about `files`."""
    refuses_with: int | None = None
    """Answer everything with this status."""

    def bodies(self, ending: str) -> list[Any]:
        return [asked.body for asked in self.asked if asked.path.endswith(ending)]

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """Status and body (JSON, or bytes) for a path below /api/v1/."""
        if self.refuses_with is not None:
            return self.refuses_with, {"detail": "no"}
        if path.startswith("mint/"):
            return self._ours(path.removeprefix("mint/"), query) if self.ours else (404, {})
        if path.startswith("samplers/"):
            return 200, {"sampler_id": "s", "base_model": MODEL, "model_path": None}
        if path.startswith("sessions/"):
            return 200, {}
        return 200, {
            "client/config": {"use_pyqwest_transport": False},
            "client/dynamic_config": {},
            "create_session": {"session_id": "ses"},
            "session_heartbeat": {},
            "telemetry": {"status": "accepted"},
            "get_server_capabilities": {"supported_models": [{"model_name": MODEL}]},
            "create_model": {"request_id": "create"},
            "load_weights": {"request_id": "load"},
            "save_weights_for_sampler": {"request_id": "pin"},
            "create_sampling_session": {"sampling_session_id": "ses:sample:0"},
            "get_info": {
                "model_id": "ses:train:0",
                "model_data": {"model_name": MODEL},
                "type": "get_info",
            },
            "asample": {"request_id": "sample", "sample_sequence_ids": ["a"]},
        }[path]

    def future(self, request_id: str) -> dict[str, Any] | bytes:
        if request_id == "sample":
            sequence = SampledSequence(
                tokens=np.array([7], np.int32),
                logprobs=np.array([-0.5], np.float32),
                stop_reason=StopReason.STOP,
            )
            return encode_result(SampleResult(sequences=(sequence,)))
        return {
            "create": {"model_id": "ses:train:0", "type": "create_model"},
            "load": {},
            "pin": {"sampling_session_id": "ses:sample:1"},
        }[request_id]

    def _ours(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        if path == "server":
            extensions = ["loss_temperature", "prompt_temperature"]
            return 200, {
                "name": "mint", "version": "0", "extensions": extensions, "models": [MODEL],
            }  # fmt: skip
        if path == "tokenizer":
            listed = self.announced or [
                {"name": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                for name, data in self.files.items()
            ]
            return 200, {"model": query["model"][0], "files": listed}
        return 200, self.files[path.removeprefix("tokenizer/")]


def _handler(service: StubService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            body = json.loads(raw) if raw else None
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            service.asked.append(
                Asked(self.command, parts.path, query, self.headers.get("X-API-Key"), body)
            )
            tail = parts.path.partition("/api/v1/")[2]
            if tail == "retrieve_future":
                status, answer = 200, service.future((body or {})["request_id"])
            else:
                status, answer = service.answer(tail, query)
            binary = isinstance(answer, bytes)
            data = answer if binary else json.dumps(answer).encode()
            self.send_response(status)
            kind = "application/x-protobuf" if tail == "retrieve_future" and binary else None
            self.send_header("Content-Type", kind or "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@pytest.fixture
def service() -> Iterator[StubService]:
    """A stub service below a path, `http://127.0.0.1:PORT/train`."""
    stub = StubService()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(stub))
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/train"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield stub
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    """No setting of the machine the tests run on reaches a client."""
    for name in list(os.environ):
        if name.startswith(("MINT_", "TINKER_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")  # and it is put back: our client sets a default
    monkeypatch.setenv("MINT_HOME", str(tmp_path_factory.mktemp("home")))
