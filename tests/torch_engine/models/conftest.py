"""A hub on loopback."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest


@pytest.fixture
def fake_hub() -> "Callable[[dict[str, Path]], AbstractContextManager[FakeHub]]":
    """`with fake_hub({name: folder}) as hub:` serves these repositories at `hub.url`."""
    return _serve


COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(ThreadingHTTPServer):
    """As far as fetching a public model goes. Serves `repos` (name to folder) and remembers which files were asked for."""

    daemon_threads = True

    def __init__(self, repos: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos = repos
        self.sent: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        for name, folder in self.server.repos.items():
            if path.startswith(f"api/models/{name}"):
                rest = path.removeprefix(f"api/models/{name}").strip("/")
                return self._tree(folder) if rest.startswith("tree/") else self._info(name, folder)
            if path.startswith(f"{name}/resolve/"):
                file = path.removeprefix(f"{name}/resolve/").partition("/")[2]
                if (folder / file).is_file():
                    return self._file(folder / file, file)
        return self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _info(self, name: str, folder: Path) -> None:
        files = [{"rfilename": path.name} for path in sorted(folder.iterdir())]
        body = {"_id": "0", "id": name, "modelId": name, "sha": COMMIT, "siblings": files}
        self._answer(200, json.dumps(body).encode())

    def _tree(self, folder: Path) -> None:
        files = [
            {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": path.name}
            for path in sorted(folder.iterdir())
        ]
        self._answer(200, json.dumps(files).encode())

    def _file(self, path: Path, name: str) -> None:
        content = path.read_bytes()
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        if self.command == "GET":
            self.server.sent.append(name)
        self._answer(200, content, headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def _serve(repos: dict[str, Path]) -> Iterator[FakeHub]:
    with FakeHub(repos) as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
