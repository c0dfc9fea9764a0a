"""Processes that work on hostile text: they end when they should, and there are not too many."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mint.recipe.cores import usable_cores
from mint.recipe.grading import workers
from mint.recipe.grading.workers import Cut, WorkerPool

SLOW = {"value": "a" * 50 + "!", "schema": {"pattern": "^(a+)+$"}}
QUICK = {"value": 1, "schema": {"type": "integer"}}


@pytest.fixture
def pool():
    pool = WorkerPool(["jsonschema"])
    yield pool
    pool.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the workers that start."""
    pids: list[int] = []

    class Counted(workers._Worker):
        def __init__(self) -> None:
            super().__init__()
            pids.append(self._process.pid)

    monkeypatch.setattr(workers, "_Worker", Counted)
    return pids


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(pid: int) -> None:
    while is_running(pid):
        time.sleep(0.02)  # the test's own time limit ends this


def test_one_worker_answers_one_request_after_the_other(pool: WorkerPool, started: list[int]):
    for _ in range(5):
        assert pool.ask("check_schema", QUICK, 30) == {"errors": []}
    assert len(started) == 1


def test_a_worker_at_its_limit_is_killed_and_replaced(pool: WorkerPool, started: list[int]):
    assert pool.ask("check_schema", SLOW, 0.2) == Cut("timeout")
    assert not is_running(started[0])
    assert pool.ask("check_schema", QUICK, 30) == {"errors": []}
    assert len(started) == 2


def test_there_are_no_more_workers_than_cores(pool: WorkerPool, started: list[int]):
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: pool.ask("check_schema", QUICK, 30), range(40)))

    assert answers == [{"errors": []}] * 40
    assert len(started) <= usable_cores()


def test_a_worker_that_someone_killed_is_a_crash_of_one_request(
    pool: WorkerPool, started: list[int]
):
    pool.ask("check_schema", QUICK, 30)
    os.kill(started[0], signal.SIGKILL)

    assert pool.ask("check_schema", QUICK, 30) == Cut("crashed")
    assert pool.ask("check_schema", QUICK, 30) == {"errors": []}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds a process's memory")
def test_memory_is_bounded(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "MEMORY_BYTES", 200 * 1024**2)
    large = {"value": [[]] * 5_000_000, "schema": {}}
    assert pool.ask("check_schema", large, 100) == Cut("memory")


def test_a_worker_ends_with_whoever_started_it():
    script = """
from mint.recipe.grading.workers import WorkerPool
import os
pool = WorkerPool(["jsonschema"])
pool.ask("check_schema", {"value": 1, "schema": {}}, 60)
print(pool._idle[0]._process.pid, flush=True)
os._exit(0)  # without a goodbye
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    wait_for_end(int(done.stdout))


def test_a_worker_in_the_middle_of_its_work_ends_by_itself():
    request = {"kind": "check_schema", "arguments": SLOW, "seconds": 0.5}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mint.recipe.grading.worker_program", str(workers.MEMORY_BYTES)],
        input=json.dumps(request) + "\n", capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGALRM
    assert done.stdout == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_has_workers_of_its_own(pool: WorkerPool):
    pool.ask("check_schema", QUICK, 30)
    worker = pool._idle[0]
    child = os.fork()
    if child == 0:
        answer = pool.ask("check_schema", QUICK, 30)
        shares_a_worker = worker in pool._idle
        pool.close()
        os._exit(0 if answer == {"errors": []} and not shares_a_worker else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.ask("check_schema", QUICK, 30) == {"errors": []}


def test_a_worker_knows_no_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINT_API_KEY", "sk-secret")
    assert "sk-secret" not in workers._environment().values()


def test_a_library_that_does_not_import_is_said(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(RuntimeError, match=r"did not start \(crashed\).*imports no_such_module"):
        WorkerPool(["no_such_module"]).ask("check_schema", QUICK, 30)
    assert "No module named 'no_such_module'" in capfd.readouterr().err


def test_a_pool_leaves_no_thread_behind(pool: WorkerPool):
    before = threading.active_count()
    pool.ask("check_schema", QUICK, 30)
    assert threading.active_count() == before
