"""A program that wants more than its limits allow gets an error of its own, or is ended."""

import asyncio
import time

import pytest
from tests.recipe.sandbox.programs import PATIENT, needs, processes_with, python, token

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.sandbox import Isolation, Limits, Sandbox, execution
from mint.recipe.sandbox.guard.watch import CpuMeter, Usage
from mint.recipe.sandbox.refused_calls import refusing_filter

MEBIBYTE = 1024 * 1024


def limits(**changed: float) -> Limits:
    return Limits(**{"wall_s": 60.0, "cpu_s": 60.0, **changed})  # pyright: ignore[reportArgumentType]


async def test_a_program_that_sleeps_is_ended_at_the_wall_limit(sandbox: Sandbox):
    result = await python(sandbox, "import time; time.sleep(600)", limits(wall_s=0.5))
    assert (result.killed_by, result.timed_out, result.signal) == ("wall", True, 9)
    assert 0.5 <= result.wall_s < 60
    assert not result.succeeded


async def test_a_program_that_ignores_every_signal_is_ended_all_the_same(sandbox: Sandbox):
    source = """
    import signal, time
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            pass
    print("deaf", flush=True)
    while True:
        time.sleep(1)
    """
    result = await python(sandbox, source, limits(wall_s=3.0))
    assert (result.killed_by, result.stdout) == ("wall", "deaf\n")


async def test_a_program_that_stops_itself_is_ended_at_the_wall_limit(sandbox: Sandbox):
    source = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    assert (await python(sandbox, source, limits(wall_s=1.0))).killed_by == "wall"


async def test_processor_time_of_all_processes_counts_together(sandbox: Sandbox):
    source = """
    import os
    for _ in range(3):
        os.fork()
    while True:
        pass
    """
    result = await python(sandbox, source, limits(cpu_s=0.4))
    assert (result.killed_by, result.timed_out) == ("cpu", True)
    assert result.cpu_s >= 0.4


async def test_processor_time_of_children_that_have_ended_counts(sandbox: Sandbox):
    source = """
    import os, time
    while True:
        if (child := os.fork()) == 0:
            until = time.process_time() + 0.1
            while time.process_time() < until:
                pass
            os._exit(0)
        os.waitpid(child, 0)
    """
    assert (await python(sandbox, source, limits(cpu_s=0.4))).killed_by == "cpu"


async def test_processor_time_of_children_that_nobody_waits_for_counts(sandbox: Sandbox):
    source = """
    import os, signal, time
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if os.fork() == 0:
            until = time.process_time() + 0.1
            while time.process_time() < until:
                pass
            os._exit(0)
        try:
            os.wait()
        except OSError:
            pass
    """
    assert (await python(sandbox, source, limits(cpu_s=0.4))).killed_by == "cpu"


def test_a_process_that_one_look_misses_is_not_counted_twice():
    meter = CpuMeter()
    looks = [{(7, 1): 1.0}, {}, {(7, 1): 1.5}, {(7, 2): 0.5}]
    told = [meter.seconds(Usage(1, 0, 0.0, own)) for own in looks]
    assert told == [1.0, 1.0, 1.5, 2.0]


async def test_memory_that_belongs_to_no_process_is_refused(sandbox: Sandbox):
    if refusing_filter() is None:
        pytest.skip("no table of system calls for this machine")
    source = """
    import ctypes, errno, os
    try:
        os.memfd_create("hidden")
    except OSError as error:
        print(errno.errorcode[error.errno])
    c = ctypes.CDLL(None, use_errno=True)
    print(c.shmget(0, 4096, 0o1600), errno.errorcode[ctypes.get_errno()])
    """
    assert (await python(sandbox, source)).stdout == "ENOSYS\n-1 ENOSYS\n"


async def test_one_process_that_takes_too_much_memory_sees_an_error(sandbox: Sandbox):
    source = """
    try:
        bytearray(300 * 1024 * 1024)
    except MemoryError:
        print("refused")
    """
    result = await python(sandbox, source, limits(memory_bytes=128 * MEBIBYTE))
    assert result.stdout == "refused\n"


async def test_processes_that_together_take_too_much_memory_are_ended(sandbox: Sandbox):
    source = """
    import os, time
    for _ in range(7):
        if os.fork() == 0:
            break
    held = b"x" * (40 * 1024 * 1024)
    time.sleep(600)
    """
    result = await python(sandbox, source, limits(memory_bytes=128 * MEBIBYTE))
    assert result.killed_by == "memory"
    assert result.peak_memory_bytes > 128 * MEBIBYTE


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("text", ["'line\\n' * 1000", "'x' * 4096"], ids=["lines", "no newline"])
async def test_a_flood_is_cut_and_its_program_ended(sandbox: Sandbox, stream: str, text: str):
    source = f"import sys\nwhile True: sys.{stream}.write({text})"
    result = await python(sandbox, source, limits(output_bytes=100_000))
    assert result.killed_by == "output"
    flooded = {"stdout": result.stdout_bytes, "stderr": result.stderr_bytes}
    assert len(flooded.pop(stream)) == 100_000
    assert list(flooded.values()) == [b""]
    assert (result.stdout_truncated, result.stderr_truncated) == (
        stream == "stdout",
        stream == "stderr",
    )


async def test_output_of_exactly_the_limit_is_whole(sandbox: Sandbox):
    result = await python(sandbox, "print('x' * 99_999)", limits(output_bytes=100_000))
    assert result.succeeded
    assert not result.stdout_truncated
    assert len(result.stdout_bytes) == 100_000


async def test_what_was_written_before_the_end_is_read(sandbox: Sandbox):
    source = "import os; os.write(1, b'x' * 60_000); os._exit(3)"
    result = await python(sandbox, source, limits(output_bytes=100_000))
    assert (len(result.stdout_bytes), result.exit_code) == (60_000, 3)


async def test_one_file_that_grows_too_large_is_an_error_of_the_programs(sandbox: Sandbox):
    source = """
    import errno
    try:
        with open("large", "wb") as file:
            for _ in range(20):
                file.write(b"x" * 1024 * 1024)
                file.flush()
    except OSError as error:
        print(errno.errorcode[error.errno])
    """
    result = await python(sandbox, source, limits(disk_bytes=8 * MEBIBYTE))
    assert result.killed_by == "disk" or result.stdout in ("EFBIG\n", "ENOSPC\n")


async def test_files_that_together_grow_too_large_are_stopped(sandbox: Sandbox):
    source = """
    import errno, time
    try:
        for i in range(20):
            with open(f"part{i}", "wb") as file:
                file.write(b"x" * 1024 * 1024)
    except OSError as error:
        print(errno.errorcode[error.errno])
    else:
        time.sleep(600)
    """
    result = await python(sandbox, source, limits(disk_bytes=8 * MEBIBYTE))
    assert result.killed_by == "disk" or result.stdout == "ENOSPC\n"


async def test_many_empty_files_are_stopped(sandbox: Sandbox):
    source = """
    import time
    for i in range(3000):
        open(f"{i}", "w").close()
    time.sleep(600)
    """
    assert (await python(sandbox, source, limits(files=500))).killed_by == "files"


async def test_files_in_shared_memory_count(sandbox: Sandbox):
    needs(sandbox, Isolation.DISK)
    source = """
    import time
    for i in range(1000):
        open(f"/dev/shm/{i}", "w").close()
    time.sleep(600)
    """
    assert (await python(sandbox, source, limits(files=500))).killed_by == "files"


async def test_files_deeper_than_any_path_reaches_count(sandbox: Sandbox):
    source = """
    import os, time
    for _ in range(30):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    for i in range(1000):
        open(f"{i}", "w").close()
    time.sleep(600)
    """
    assert (await python(sandbox, source, limits(files=500))).killed_by == "files"


async def test_a_program_with_as_many_files_as_it_may_have_is_left_alone(sandbox: Sandbox):
    source = """
    import time
    for i in range(99):
        open(f"{i}", "w").close()
    time.sleep(0.5)
    """
    assert (await python(sandbox, source, limits(files=100))).succeeded


async def test_open_files_are_limited(sandbox: Sandbox):
    source = """
    held = []
    try:
        while True:
            held.append(open("/dev/null"))
    except OSError:
        print(len(held))
    """
    result = await python(sandbox, source, limits(open_files=32))
    assert int(result.stdout) <= 32


async def test_more_processes_than_allowed_are_refused(sandbox: Sandbox):
    needs(sandbox, Isolation.PROCESS_COUNT)
    source = """
    import os, time
    for i in range(100):
        try:
            if os.fork() == 0:
                time.sleep(600)
        except BlockingIOError:
            print(i, flush=True)
            break
    os._exit(0)
    """
    result = await python(sandbox, source, limits(processes=10))
    assert result.stdout == "9\n"  # and the first


async def test_threads_count_as_processes(sandbox: Sandbox):
    needs(sandbox, Isolation.PROCESS_COUNT)
    source = """
    import threading, os
    for i in range(100):
        try:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        except RuntimeError:
            print(i, flush=True)
            break
    os._exit(0)
    """
    assert (await python(sandbox, source, limits(processes=10))).stdout == "9\n"


async def test_programs_beside_each_other_have_their_own_count(sandbox: Sandbox):
    needs(sandbox, Isolation.PROCESS_COUNT)
    source = """
    import os, time
    for _ in range(7):
        if os.fork() == 0:
            time.sleep(1)
            os._exit(0)
    for _ in range(7):
        os.wait()
    """
    results = await asyncio.gather(
        *(python(sandbox, source, limits(processes=8)) for _ in range(4))
    )
    assert [result.exit_code for result in results] == [0] * 4


async def test_a_fork_bomb_ends_and_leaves_nothing(sandbox: Sandbox):
    needs(sandbox, Isolation.PROCESS_COUNT)
    mark = token()
    source = """
    import os
    while True:
        try:
            os.fork()
            os.setsid()
        except OSError:
            pass
    """
    result = await python(sandbox, source, limits(processes=24, wall_s=1.0), mark)
    assert result.killed_by in ("wall", "processes")
    assert processes_with(mark) == []


async def test_a_program_that_stops_all_it_can_does_not_stop_what_ends_it(sandbox: Sandbox):
    needs(sandbox, Isolation.SIGNALS)
    mark = token()
    source = """
    import os, signal
    while True:
        try:
            os.kill(-1, signal.SIGSTOP)
        except OSError:
            pass
    """
    began = time.monotonic()
    for _ in range(6):  # it is a race: about every second one was lost
        result = await python(sandbox, source, limits(wall_s=0.2), mark)
        assert result.killed_by == "wall"
    assert time.monotonic() - began < execution.GRACE_S  # what a run takes whose guard is stopped
    assert processes_with(mark) == []


async def test_endless_recursion_is_a_crash_of_the_program(sandbox: Sandbox):
    source = """
    import sys
    sys.setrecursionlimit(10**9)
    def down(n):
        return eval("down(n + 1)", {"down": down, "n": n})
    down(0)
    """
    result = await python(sandbox, source)
    assert not result.succeeded
    assert result.exit_code != 0


async def test_no_core_is_dumped(sandbox: Sandbox):
    source = "import os, resource; print(resource.getrlimit(resource.RLIMIT_CORE), flush=True); os.abort()"
    result = await python(sandbox, source)
    assert (result.stdout, result.signal) == ("(0, 0)\n", 6)


async def test_limits_cannot_be_raised_from_inside(sandbox: Sandbox):
    needs(sandbox, Isolation.PROCESS_COUNT)
    source = """
    import resource
    for name in ("AS", "NPROC", "FSIZE", "NOFILE", "CPU"):
        kind = getattr(resource, f"RLIMIT_{name}")
        try:
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            print("raised", name)
        except ValueError:
            pass
    """
    assert (await python(sandbox, source)).stdout == ""


async def test_a_program_within_its_limits_is_told_of_with_what_it_used(sandbox: Sandbox):
    source = """
    import time
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    """
    result = await python(sandbox, source, PATIENT)
    assert result.succeeded
    assert result.cpu_s >= 0.3
    assert result.wall_s >= 0.3
    assert result.peak_memory_bytes > MEBIBYTE


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), True, "10", None])
def test_a_limit_that_is_none_is_refused_by_name(value: object):
    with pytest.raises(ConfigurationError, match="wall_s"):
        Limits(wall_s=value)  # pyright: ignore[reportArgumentType]


def test_half_a_process_is_refused():
    with pytest.raises(ConfigurationError, match="processes"):
        Limits(processes=1.5)  # pyright: ignore[reportArgumentType]
