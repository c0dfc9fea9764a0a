"""`mint serve` as a process, with the engine that computes nothing, and requests to it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from mint.server.settings import ServerSettings
from mint.testing.service import wait_until_serving

ROOT = Path(__file__).parents[2]
FAKE = "tests.server.worker.fake_engine:build"

_RUN = """
import sys
from mint.core.errors import MintError
from mint.server.process import serve
from mint.server.settings import ServerSettings
try:
    serve(ServerSettings.from_json(sys.argv[1]))
except MintError as error:
    sys.exit(str(error))
"""


class Served:
    """One server process on a data folder; what it prints goes to `log`."""

    def __init__(self, data: Path, **fields: Any) -> None:
        self.data = data
        self.log = data.parent / f"{data.name}.log"
        given = {"models": ("tiny",), "port": 0, "engine": FAKE, **fields}
        self.settings = settings = ServerSettings(data=data, **given)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _RUN, settings.to_json()],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def ready(self) -> "Served":
        """Wait until it serves, and log in."""
        self.http = httpx.Client(
            base_url=wait_until_serving(self.process, self.data, self.log),
            headers={"X-API-Key": (self.data / "key").read_text().strip()},
            timeout=60,
        )
        return self

    def wait(self) -> int:
        return self.process.wait(60)

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(60)

    def engine_pid(self) -> int:
        return int(json.loads((self.data / "engine.json").read_text())["pid"])

    def health(self) -> dict[str, Any]:
        return self.http.get("/healthz").json()

    def post(self, route: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post(f"/api/v1/{route}", json=body)
        answer.raise_for_status()
        return answer.json()

    def cancel(self, request_id: str) -> None:
        answer = self.http.post("/api/v1/cancel_future", json={"request_id": request_id})
        answer.raise_for_status()

    def result(self, request_id: str) -> dict[str, Any]:
        """Poll a future until it has a result or an error."""
        while True:
            answer = self.http.post("/api/v1/retrieve_future", json={"request_id": request_id})
            if answer.status_code != 408:
                answer.raise_for_status()
                return answer.json()

    # ------------------------------------------------------ what a client does

    def session(self) -> str:
        told = self.post("create_session", tags=[], user_metadata={}, sdk_version="0.38.0")
        return told["session_id"]

    def model(self, session: str, seq: int = 0) -> str:
        request = self.post(
            "create_model", session_id=session, model_seq_id=seq, base_model="tiny",
            lora_config={"rank": 4},
        )  # fmt: skip
        return self.result(request["request_id"])["model_id"]

    def save(self, model: str, name: str, seq: int) -> str:
        request = self.post("save_weights", model_id=model, path=name, seq_id=seq)
        return self.result(request["request_id"])["path"]

    def step(self, model: str, seq: int) -> str:
        return self.post("optim_step", model_id=model, seq_id=seq, adam_params={})["request_id"]

    def sampler(self, session: str, **fields: Any) -> str:
        told = self.post(
            "create_sampling_session", session_id=session, sampling_session_seq_id=0,
            base_model="tiny",
        )  # fmt: skip
        return told["sampling_session_id"]

    def sample(self, sampler: str, seq: int, **params: Any) -> str:
        told = self.post(
            "asample", sampling_session_id=sampler, seq_id=seq, num_samples=1,
            prompt={"chunks": [{"type": "encoded_text", "tokens": [1]}]},
            sampling_params={"max_tokens": 2, **params},
        )  # fmt: skip
        return told["request_id"]


def alive(pid: int) -> bool:
    """Whether a process runs (a dead one that nobody has waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
