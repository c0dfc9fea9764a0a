"""make test-sdks: every script with every version of the SDK, all at once against one server.

    python -m tests.sdks.driver [--versions 0.38.0 ...] [--scripts NAME ...] [--write-docs]

Ends with a table, and a line that counts.
"""

import argparse
import os
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
from tests.sdks.environments import BUILD, NEEDS_TORCH, ROOT, TORCH, Environment, set_up, versions
from tests.sdks.footprint import Footprint
from tests.sdks.table import Outcome, Result, Script, scripts

from mint.testing import LocalService, local_service
from mint.testing.service import without_settings

MODEL = "tiny/llama"
TIMEOUT_S = 300
"""Of one script; nearly all take a few seconds."""
ALONE = {"many_futures"}
"""Run after the others, one version after the other: they ask for all there is."""


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


def _run_all(
    stage: Stage, environments: Sequence[Environment], chosen: Sequence[Script]
) -> list[Result]:
    """All versions at once; the scripts of one version, one after the other."""
    together = [script for script in chosen if script.name not in ALONE]

    def run_version(environment: Environment) -> list[Result]:
        key = _new_key(stage, f"sdk-{environment.version}")
        return [_run(stage, environment, script, key) for script in together]

    with ThreadPoolExecutor(max_workers=len(environments)) as at_once:
        return [result for each in at_once.map(run_version, environments) for result in each]


def _run_alone(
    stage: Stage, environments: Sequence[Environment], chosen: Sequence[Script]
) -> list[Result]:
    """The demanding scripts, with a look at what they leave behind in the server."""
    results = []
    for script in chosen:
        if script.name not in ALONE:
            continue
        for environment in environments:
            key = _new_key(stage, f"alone-{environment.version}")
            with Footprint(stage.server.data) as footprint:
                result = _run(stage, environment, script, key)
            if result.outcome is Outcome.PASSED:
                left = footprint.left_behind()
                print(f"{environment.version} {script.name}: {footprint}", flush=True)
                if left:
                    result = replace(result, outcome=Outcome.FAILED, detail=left)
                    print(f"FAILED {environment.version} {script.name}: {left}", flush=True)
            results.append(result)
    return results


def _run(stage: Stage, environment: Environment, script: Script, key: str) -> Result:
    log = stage.folder / f"{environment.version}-{script.name}.log"
    began = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(
            [environment.python, script.path],
            env=_variables(stage, environment, script, key),
            cwd=stage.folder, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            code = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
    said = log.read_text()
    outcome, detail = _judge(code, said)
    if outcome is Outcome.FAILED:
        print(f"FAILED {environment.version} {script.name}: {detail}\n{said[-3000:]}", flush=True)
    return Result(environment.version, script, outcome, detail, time.monotonic() - began)


def _judge(code: int | None, said: str) -> tuple[Outcome, str]:
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    if code is None:
        return Outcome.FAILED, f"did not end within {TIMEOUT_S} s"
    if code != 0:
        return Outcome.FAILED, last
    skipped = [line for line in said.splitlines() if line.startswith("SKIP: ")]
    if skipped:
        return Outcome.SKIPPED, skipped[0].removeprefix("SKIP: ")
    return Outcome.PASSED, ""


def _variables(stage: Stage, environment: Environment, script: Script, key: str) -> dict[str, str]:
    path = [str(ROOT)]
    if script.needs_torch or environment.version in NEEDS_TORCH:
        path.append(str(TORCH))
    return {
        **without_settings(os.environ),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "TINKER_BASE_URL": stage.server.url,
        "TINKER_API_KEY": f"tml-{key}",
        "HOME": str(stage.folder),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
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
