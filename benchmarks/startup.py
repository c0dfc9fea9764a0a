"""How long from `mint serve` to the first sampled token?

Time runs from the start of the process `mint serve --model <embedded model>` until the official
client holds one sampled token. The data folder is new; the model has been converted before (that
happens once for a machine) and its files are in the page cache. The client is a process that has
imported the SDK already, as a notebook would: it waits for the server's record, connects, and
asks for one token of the base model.

The table is the time line of the median run: what a line names had happened by then.

    python -m benchmarks.startup [--repeats 3] [--model NAME[=FOLDER]] [--threads N] [--save]

Prints a table, and a last line of JSON.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import httpx
import psutil

import mint
from benchmarks import harness
from mint.testing.service import wait_until_serving, without_settings
from mint.torch_engine.models.registry import ModelRegistry

MARKS: Mapping[str, str] = {
    "serving ": "engine process has its imports and knows its models",
    "loaded base model": "weights in memory",
    "MinT is serving at": "server announces itself",
}
"""Text in the server's output, and what has happened when it appears."""
PROMPT = "The first word is"


class Run:
    """One server, from its start to the first token of a client."""

    def __init__(self, model: str, threads: int, folder: Path) -> None:
        self._data, self._log = folder / "data", folder / "server.log"
        self._began = time.perf_counter()
        self.marks: dict[str, float] = {}
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mint.cli.main", "serve", "--port", "0"),
                *("--data", str(self._data), "--model", model, "--device", "cpu"),
                *("--threads", str(threads)),
            ],
            env={**without_settings(os.environ), "MINT_HOME": str(folder), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def first_token(self, home: Path) -> dict[str, float]:
        """Wait for the server, sample one token, end the server.

        Returns:
            Seconds from the start to each mark, in order of time, and CPU seconds of the server's
            processes under "cpu".
        """
        try:
            url = wait_until_serving(self._process, self._data, self._log)
            key = (self._data / "key").read_text().strip()
            self._note("client has the server's record")
            httpx.get(f"{url}/healthz", trust_env=False).raise_for_status()
            os.environ["MINT_HOME"] = str(home)
            with mint.ServiceClient(base_url=url, api_key=key) as service:
                client = service.create_sampling_client(base_model=self._name(url, key)).result()
                self._note("client has its session")
                tokens = mint.ModelInput.from_ints(list(PROMPT.encode()))
                params = mint.SamplingParams(max_tokens=1)
                client.sample(tokens, 1, params).result()
                self._note("first token")
            cpu = _cpu_seconds(self._process.pid)
        finally:
            self._process.terminate()
            self._process.wait(60)
            self._reader.join()
        return {**dict(sorted(self.marks.items(), key=lambda one: one[1])), "cpu": cpu}

    def _name(self, url: str, key: str) -> str:
        told = httpx.get(
            f"{url}/api/v1/mint/server", headers={"X-API-Key": key}, trust_env=False
        ).json()
        return told["models"][0]["name"]

    def _read(self, output: IO[bytes]) -> None:
        with self._log.open("wb") as log:
            for line in output:
                log.write(line)
                log.flush()
                for text, mark in MARKS.items():
                    if text.encode() in line:
                        self._note(mark)

    def _note(self, mark: str) -> None:
        self.marks.setdefault(mark, time.perf_counter() - self._began)


def _cpu_seconds(pid: int) -> float:
    """Of a process and those it has started."""
    server = psutil.Process(pid)
    times = [one.cpu_times() for one in (server, *server.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def one_run(model: str, threads: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="mint-startup-") as folder:
        return Run(model, threads, Path(folder)).first_token(Path(folder) / "home")


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    told = harness.before(args)
    ModelRegistry((args.model,)).check()  # converted before anything is timed
    assert mint.SamplingParams, "the SDK is imported before anything is timed"

    runs = sorted(
        (one_run(args.model, args.threads) for _ in range(args.repeats)), key=_first_token
    )
    median = runs[len(runs) // 2]
    cpu_s = median.pop("cpu")
    rows = [*median.items(), ("CPU seconds of the server by then", cpu_s)]
    print(harness.table(["what has happened", "s"], rows))
    figures = {
        "seconds_to_first_token": round(_first_token(median), 2),
        "all_runs": [round(_first_token(run), 2) for run in runs],
        "cpu_seconds": round(cpu_s, 2),
        "time_line": {mark: round(at, 2) for mark, at in median.items()},
    }
    harness.report(harness.result_name("startup", args), figures, told, save=args.save)


def _first_token(run: dict[str, float]) -> float:
    return run["first token"]


if __name__ == "__main__":
    main()
