"""make test-sdks: every script with every version of the SDK, all at once against one server.

    python -m tests.sdks.driver [--versions 0.38.0 ...] [--scripts NAME ...] [--write-docs]

Ends with a table, and a line that counts.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.sdks import table
from tests.sdks.busy import busy
from tests.sdks.environments import BUILD, NEEDS_TORCH, ROOT, TORCH, Environment, set_up, versions
from tests.sdks.footprint import Footprint
from tests.sdks.table import Outcome, Result, Script, scripts

from mint.testing import LocalService, local_service
from mint.testing.service import without_settings

MODEL = "tiny/llama"
TIMEOUT_S = 300
"""Of one script; nearly all take a few seconds."""
ALONE = {"many_futures": 2000}
"""Run after the others, one version after the other: they ask for all there is. And how many
connections each is to hold at once."""
HOST = Path(__file__).with_name("host.py")


@dataclass(frozen=True)
class Stage:
    """What every script finds: a server, and a folder to run in where `transformers` finds the
    model's tokenizer under the model's name."""

    server: LocalService
    folder: Path


def main() -> None:
    asked = _arguments()
    chosen = [script for script in scripts() if not asked.scripts or script.name in asked.scripts]
    environments = set_up(asked.versions)
    began = time.monotonic()
    with _stage() as stage:
        results = _run_all(stage, environments, chosen)
        results += _run_alone(stage, environments, chosen)
    print()
    print(table.as_text(results))
    slowest = sorted(results, key=lambda result: -result.took_s)[:5]
    print(f"\n{time.monotonic() - began:.0f} s; the slowest:")
    for result in slowest:
        print(f"{result.took_s:6.1f} s  {result.version} {result.script.name}")
    if asked.write_docs:
        table.write_docs(results)
    counts = [sum(result.outcome is outcome for result in results) for outcome in Outcome]
    print("{} passed, {} failed, {} skipped".format(*counts))
    sys.exit(any(result.outcome is Outcome.FAILED for result in results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [script.name for script in scripts()]
    parser.add_argument("--versions", nargs="+", choices=versions(), default=versions())
    parser.add_argument("--scripts", nargs="+", choices=names, metavar="NAME")
    parser.add_argument("--write-docs", action="store_true", help="renew the table of the docs")
    asked = parser.parse_args()
    if asked.write_docs and (asked.scripts or asked.versions != versions()):
        parser.error("--write-docs needs all versions and all scripts.")
    return asked


@contextmanager
def _stage() -> Iterator[Stage]:
    BUILD.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=BUILD, prefix="run-") as temporary:
        folder = Path(temporary)
        with local_service(folder, model=MODEL) as server:
            (folder / MODEL).parent.mkdir()
            (folder / MODEL).symlink_to(folder / "models" / "tiny")
            yield Stage(server, folder)


# ------------------------------------------------------------------ running


class _User:
    """Somebody with one version of the SDK and a key of their own, who has nothing yet."""

    def __init__(self, stage: Stage, environment: Environment, name: str) -> None:
        self.version = environment.version
        self._stage = stage
        self._environment = environment
        self.key = _new_key(stage, f"{name}-{environment.version}")
        self._hosts: dict[bool, subprocess.Popen[str]] = {}

    def run(self, script: Script) -> Result:
        began = time.monotonic()
        log = self._stage.folder / f"{self.version}-{script.name}.log"
        host = self._host(with_torch=script.needs_torch or self.version in NEEDS_TORCH)
        assert host.stdin
        assert host.stdout
        print(json.dumps([str(script.path), str(log), TIMEOUT_S]), file=host.stdin, flush=True)
        status = host.stdout.readline()
        if not status:
            raise RuntimeError(f"tinker {self.version} cannot be imported; see above")
        said = log.read_text()
        outcome, detail = _judge(int(status), said)
        if outcome is Outcome.FAILED:
            print(f"FAILED {self.version} {script.name}: {detail}\n{said[-3000:]}", flush=True)
        return Result(self.version, script, outcome, detail, time.monotonic() - began)

    def leave(self) -> None:
        for host in self._hosts.values():
            host.communicate()  # the end of its input is its end

    def _host(self, with_torch: bool) -> subprocess.Popen[str]:
        if with_torch not in self._hosts:
            self._hosts[with_torch] = subprocess.Popen(
                [self._environment.python, HOST],
                env=_variables(self._stage, self.key, with_torch),
                cwd=self._stage.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        return self._hosts[with_torch]


@contextmanager
def _user(stage: Stage, environment: Environment, name: str) -> Iterator[_User]:
    user = _User(stage, environment, name)
    try:
        yield user
    finally:
        user.leave()


def _run_all(
    stage: Stage, environments: Sequence[Environment], chosen: Sequence[Script]
) -> list[Result]:
    """All versions at once; the scripts of one version, one after the other."""
    together = [script for script in chosen if script.name not in ALONE]

    def run_version(environment: Environment) -> list[Result]:
        with _user(stage, environment, "sdk") as user:
            return [user.run(script) for script in together]

    with ThreadPoolExecutor(max_workers=len(environments)) as at_once:
        return [result for each in at_once.map(run_version, environments) for result in each]


def _run_alone(
    stage: Stage, environments: Sequence[Environment], chosen: Sequence[Script]
) -> list[Result]:
    """The demanding scripts, with a look at what they leave behind in the server."""
    demanding = [script for script in chosen if script.name in ALONE]
    return [
        _run_watched(stage, environment, script)
        for script in demanding
        for environment in environments
    ]


def _run_watched(stage: Stage, environment: Environment, script: Script) -> Result:
    """Run a script whose samples are held up until it has opened all its connections."""
    connections = ALONE[script.name]
    with (
        _user(stage, environment, "alone") as user,
        Footprint(stage.server.data) as footprint,
        ThreadPoolExecutor(max_workers=1) as beside,
    ):
        with busy(stage.server.url, user.key, MODEL):
            running = beside.submit(user.run, script)
            footprint.wait_until_open(connections, running.done)
        result = running.result()
    if result.outcome is not Outcome.PASSED:
        return result
    wrong = footprint.complaint(connections)
    print(f"{result.version} {script.name}: {footprint}", flush=True)
    if wrong:
        print(f"FAILED {result.version} {script.name}: {wrong}", flush=True)
        return replace(result, outcome=Outcome.FAILED, detail=wrong)
    return result


def _judge(status: int, said: str) -> tuple[Outcome, str]:
    lines = [line for line in said.splitlines() if line.strip()]
    skipped = [line for line in lines if line.startswith("SKIP: ")]
    if status == -signal.SIGALRM:
        return Outcome.FAILED, f"did not end within {TIMEOUT_S} s"
    if status != 0:
        return Outcome.FAILED, lines[-1] if lines else f"ended with status {status}"
    if skipped:
        return Outcome.SKIPPED, skipped[0].removeprefix("SKIP: ")
    return Outcome.PASSED, ""


def _variables(stage: Stage, key: str, with_torch: bool) -> dict[str, str]:
    path = [str(ROOT), *([str(TORCH)] if with_torch else [])]
    return {
        **without_settings(os.environ),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "TINKER_BASE_URL": stage.server.url,
        "TINKER_API_KEY": f"tml-{key}",
        "HOME": str(stage.folder),
        "HF_HUB_OFFLINE": "1",
        # One thread each: there are five of them, and a fork takes only one along.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _new_key(stage: Stage, name: str) -> str:
    """A key of an owner who has nothing yet."""
    mint = [sys.executable, "-m", "mint.cli.main"]
    made = subprocess.run(
        [*mint, "keys", "create", name, "--data", str(stage.server.data)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return made.stdout.strip()


if __name__ == "__main__":
    main()
