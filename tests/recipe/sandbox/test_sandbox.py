"""The one interface, whatever the backend; and which backend it is."""

import asyncio
import os
import resource
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from tests.recipe.sandbox.programs import PATIENT, processes_with, python, token

from mint.recipe.exceptions import ConfigurationError, DataValidationError
from mint.recipe.sandbox import (
    PYTHON,
    Isolation,
    Limits,
    Sandbox,
    SandboxError,
    WeakIsolationWarning,
    backends,
    bubblewrap,
    processes,
    users,
)
from mint.recipe.sandbox.isolation import WITHOUT


async def test_a_result_says_what_happened(sandbox: Sandbox):
    source = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    result = await python(sandbox, source)
    assert (result.exit_code, result.signal, result.killed_by) == (7, None, None)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert not result.succeeded
    assert not result.timed_out


async def test_a_signal_is_told_from_an_exit_code(sandbox: Sandbox):
    result = await python(sandbox, "import os; os.kill(os.getpid(), 15)")
    assert (result.exit_code, result.signal) == (None, 15)


async def test_an_exit_code_beyond_every_signal_is_an_exit_code(sandbox: Sandbox):
    result = await python(sandbox, "import sys; sys.exit(-1)")
    assert (result.exit_code, result.signal) == (255, None)


async def test_output_that_is_no_utf8_is_kept_as_bytes_and_readable_as_text(sandbox: Sandbox):
    result = await python(sandbox, "import os; os.write(1, b'a\\xff\\xc3b')")
    assert result.stdout_bytes == b"a\xff\xc3b"
    assert result.stdout == "a�\ufffdb"


async def test_stdin_is_given_whole_and_then_ends(sandbox: Sandbox):
    source = "import sys; print(len(sys.stdin.buffer.read()), sys.stdin.read() == '')"
    result = await python(sandbox, source, stdin=b"x" * 3_000_000)
    assert result.stdout == "3000000 True\n"


async def test_without_stdin_its_end_is_there_at_once(sandbox: Sandbox):
    assert (await python(sandbox, "import sys; print(repr(sys.stdin.read()))")).stdout == "''\n"


async def test_a_program_that_does_not_read_its_stdin_is_fine(sandbox: Sandbox):
    assert (await python(sandbox, "print('done')", stdin=b"x" * 3_000_000)).succeeded


async def test_text_that_is_no_utf8_is_handed_over(sandbox: Sandbox):
    source = "import sys; print(sys.stdin.buffer.read(), open('f', 'rb').read())"
    result = await sandbox.run(
        {"f": "\udc80", "main.py": source}, (*PYTHON, "main.py"), stdin="a\ud800"
    )
    assert result.stdout == r"b'a\xed\xa0\x80' b'\xed\xb2\x80'" + "\n"


async def test_variables_are_added(sandbox: Sandbox):
    result = await sandbox.run(
        {}, (*PYTHON, "-c", "import os; print(os.environ['SEED'])"), variables={"SEED": "3"}
    )
    assert result.stdout == "3\n"


async def test_a_file_of_its_own_can_be_the_command(sandbox: Sandbox):
    result = await sandbox.run({"say.sh": "echo said"}, ("sh", "say.sh"))
    assert result.stdout == "said\n"


async def test_a_command_that_does_not_exist_is_an_error_of_the_callers(sandbox: Sandbox):
    for command in (("no-such-program",), ("/no/such/program",), ("./none",)):
        with pytest.raises(SandboxError, match=command[0].strip("./")):
            await sandbox.run({}, command)


@pytest.mark.parametrize("command", ["python3 main.py", (), ("a\0b",), ("python3", 1)])
async def test_a_command_that_is_none_is_refused(sandbox: Sandbox, command: object):
    with pytest.raises(DataValidationError, match="command"):
        await sandbox.run({}, command)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["", "a=b", "a\0b"])
async def test_a_variable_that_is_none_is_refused(sandbox: Sandbox, name: str):
    with pytest.raises(DataValidationError, match="variables"):
        await sandbox.run({}, ("true",), variables={name: "x"})


async def test_no_more_run_at_once_than_are_allowed(sandbox: Sandbox):
    source = """
    import time
    began = time.monotonic()
    time.sleep(0.3)
    print(began, time.monotonic())
    """
    results = await asyncio.gather(*(python(sandbox, source) for _ in range(10)))
    times = [tuple(map(float, result.stdout.split())) for result in results]
    most = max(sum(began <= moment < ended for began, ended in times) for moment, _ in times)
    assert 1 < most <= sandbox.max_running


async def test_the_wall_limit_does_not_count_the_wait_for_a_turn(sandbox: Sandbox):
    first = [
        asyncio.create_task(python(sandbox, "import time; time.sleep(3)"))
        for _ in range(sandbox.max_running)
    ]
    await asyncio.sleep(0.2)
    late = await python(sandbox, "print('done')", Limits(wall_s=2.5))
    assert late.succeeded
    assert all(result.succeeded for result in await asyncio.gather(*first))


async def test_a_program_that_ends_badly_does_not_disturb_its_neighbours(sandbox: Sandbox):
    bad = [python(sandbox, "import os; os.abort()"), python(sandbox, "while True: print('x')")]
    good = [python(sandbox, f"print({i})") for i in range(6)]
    results = await asyncio.gather(*bad, *good)
    assert [result.stdout for result in results[2:]] == [f"{i}\n" for i in range(6)]


def test_a_backend_says_what_it_keeps_programs_from(sandbox: Sandbox):
    if sandbox.backend == "bubblewrap":
        assert sandbox.isolates == set(Isolation)
    else:
        assert Isolation.ENVIRONMENT in sandbox.isolates
        assert Isolation.NETWORK not in sandbox.isolates
        assert (Isolation.SIGNALS in sandbox.isolates) == (os.geteuid() == 0)


def test_every_isolation_has_a_sentence_for_its_absence():
    assert set(WITHOUT) == set(Isolation)


def test_plain_processes_are_announced_once_with_what_they_can_do():
    with pytest.warns(WeakIsolationWarning) as warned:
        Sandbox("subprocess").close()
    assert len(warned) == 1
    assert "connect to the network" in str(warned[0].message)
    assert warned[0].filename == __file__


@pytest.mark.bubblewrap
def test_bubblewrap_needs_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Sandbox("bubblewrap").close()
        with Sandbox() as best:
            assert best.backend == "bubblewrap"


@pytest.fixture
def fresh_choice():
    backends._tried.cache_clear()
    yield
    backends._tried.cache_clear()


@pytest.mark.usefixtures("fresh_choice")
def test_without_bubblewrap_auto_falls_back_loudly_and_by_name_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(bubblewrap, "which", lambda _: None)
    with pytest.warns(WeakIsolationWarning, match="not installed"), Sandbox() as weak:
        assert weak.backend == "subprocess"
    with pytest.raises(SandboxError, match="not installed"):
        Sandbox("bubblewrap")


@pytest.mark.usefixtures("fresh_choice")
@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap needs Linux")
def test_a_bubblewrap_that_does_not_work_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    broken = tmp_path / "bwrap"
    broken.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n"
    )
    broken.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == tmp_path.owner() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    monkeypatch.setattr(bubblewrap, "which", lambda _: str(broken))
    with pytest.raises(SandboxError, match="No permissions to create new namespace"):
        Sandbox("bubblewrap")
    with pytest.warns(WeakIsolationWarning, match="No permissions"), Sandbox("auto") as weak:
        assert weak.backend == "subprocess"


def test_without_the_modules_that_windows_lacks_the_sandbox_can_be_imported():
    script = """
import sys
sys.modules |= dict.fromkeys(("fcntl", "grp", "pwd", "resource"))
from mint.recipe.sandbox import Sandbox
"""
    subprocess.run([sys.executable, "-c", script], timeout=100, check=True)


def test_windows_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert "WSL" in (processes.missing() or "")
    assert "Linux" in (bubblewrap.missing() or "")


def test_an_unknown_backend_or_an_empty_pool_is_refused():
    with pytest.raises(ConfigurationError, match="'docker'"):
        Sandbox("docker")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="max_running"):
        Sandbox(max_running=0)


def test_more_at_once_than_descriptors_suffice_for_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1024))
    with pytest.raises(ConfigurationError, match="at most 16 run at once"):
        Sandbox("subprocess", max_running=17)


def test_an_interpreter_that_is_none_is_refused_with_what_was_tried():
    with pytest.raises(SandboxError, match="/no/python"):
        Sandbox("subprocess", python="/no/python")


@pytest.mark.bubblewrap
async def test_a_folder_can_be_shown_and_not_written(tmp_path_factory: pytest.TempPathFactory):
    shown = Path("/var/tmp") / f"mint-shown-{os.getpid()}"
    shown.mkdir(mode=0o777)
    try:
        (shown / "library.py").write_text("answer = 42")
        (shown / "library.py").chmod(0o644)
        with Sandbox("bubblewrap", readable=[shown]) as sandbox:
            source = f"""
            import sys
            sys.path.append({str(shown)!r})
            import library
            print(library.answer)
            open({str(shown / "mine")!r}, "w")
            """
            result = await python(sandbox, source)
        assert result.stdout == "42\n"
        assert "Read-only file system" in result.stderr
    finally:
        (shown / "library.py").unlink()
        shown.rmdir()


@pytest.mark.usefixtures("fresh_choice")
@pytest.mark.filterwarnings("ignore::mint.recipe.sandbox.WeakIsolationWarning")
async def test_without_root_a_guard_ends_what_left_its_session(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "can_choose_user", lambda: False)
    mark = token()
    source = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    time.sleep(0.2)
    print("done")
    """
    with Sandbox("subprocess") as sandbox:
        assert sandbox.isolates == {Isolation.ENVIRONMENT}
        result = await python(sandbox, source, PATIENT, mark)
    assert result.stdout == "done\n"
    assert processes_with(mark) == []


@pytest.mark.skipif(not users.can_choose_user(), reason="only root can choose")
def test_no_two_programs_have_the_same_user_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(users.random, "choice", lambda numbers: numbers[next(picked)])
    picked = iter([0, 0, 1])
    with users.user_of_its_own() as first, users.user_of_its_own() as second:
        assert (first, second) == (users.FREE[0], users.FREE[1])
    picked = iter([0])
    with users.user_of_its_own() as again:
        assert again == first
