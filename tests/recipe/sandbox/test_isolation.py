"""What a program must not reach. Where a backend does not see to something, its test is skipped."""

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from tests.recipe.sandbox.programs import PATIENT, needs, processes_with, python, token

from mint.recipe.sandbox import Isolation, Limits, Sandbox
from mint.recipe.sandbox.refused_calls import refusing_filter


async def test_the_environment_has_nothing_of_ours(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MINT_API_KEY", "sk-secret")
    result = await python(sandbox, "import os; print(*sorted(os.environ))")
    assert set(result.stdout.split()) <= {"HOME", "LANG", "LC_CTYPE", "PATH", "PWD", "TMPDIR"}


async def test_no_process_that_can_be_seen_shows_our_environment_memory_or_descriptors(
    sandbox: Sandbox,
):
    needs(sandbox, Isolation.SIGNALS)
    source = """
    import os
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        for name in ("environ", "maps", "fd", "cwd", "root"):
            path = f"/proc/{pid}/{name}/"
            try:
                seen = open(path[:-1], "rb").read() if name in ("environ", "maps") else os.listdir(path)
            except OSError:
                continue
            if seen:
                print(pid, name, open(f"/proc/{pid}/cmdline").read())
        try:
            open(f"/proc/{pid}/mem", "rb")
            print(pid, "memory", open(f"/proc/{pid}/cmdline").read())
        except OSError:
            pass
    """
    seen = (await python(sandbox, source)).stdout.splitlines()
    # Process 1 behind bubblewrap is bubblewrap's own, in the same namespaces: it has nothing of ours.
    assert [line for line in seen if "bwrap" not in line] == []


async def test_descriptors_of_ours_are_not_inherited(sandbox: Sandbox, tmp_path: Path):
    ours = os.open(tmp_path / "ours", os.O_WRONLY | os.O_CREAT)
    os.set_inheritable(ours, True)
    source = """
    import os
    for fd in range(3, 1100):
        try:
            os.write(fd, b"mine now")
            print("wrote to", fd)
        except OSError:
            pass
    """
    result = await python(sandbox, source)
    os.close(ours)
    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / "ours").read_text() == ""


async def test_files_of_this_machine_cannot_be_read(sandbox: Sandbox):
    needs(sandbox, Isolation.READING)
    paths = [
        __file__, "/etc/passwd", "/etc/shadow", "/etc/hostname", str(Path.home()), tempfile.gettempdir(),
        "/var", "/sys", "/run", "/mnt", "/dev/mem", "/dev/kmsg", "/proc/kcore",
    ]  # fmt: skip
    source = f"""
    import os
    for path in {paths!r}:
        try:
            if os.path.isdir(path):
                print(path, os.listdir(path))
            else:
                print(path, open(path, "rb").read(1))
        except OSError:
            pass
    """
    seen = (await python(sandbox, source)).stdout.splitlines()
    # Of a home folder, nothing but the way to an interpreter may be there; /tmp is its own.
    seen = [line for line in seen if not line.startswith(f"{Path.home()} ['.pyenv']")]
    assert seen == [f"{tempfile.gettempdir()} ['work']"]


async def test_what_only_we_may_read_cannot_be_read(sandbox: Sandbox, tmp_path: Path):
    needs(sandbox, Isolation.SIGNALS)
    secret = tmp_path / "expected_answers"
    secret.write_text("42")
    secret.chmod(stat.S_IRUSR)
    result = await python(sandbox, f"print(open({str(secret)!r}).read())")
    assert result.exit_code == 1
    assert result.stdout == ""


async def test_nothing_outside_of_the_private_folders_can_be_written(sandbox: Sandbox):
    needs(sandbox, Isolation.WRITING)
    source = """
    import os
    def try_to(what, act):
        try:
            act()
            print("could", what)
        except OSError:
            pass
    for folder in ("/", "/usr", "/usr/bin", "/usr/lib", "/lib", "/etc", "/dev", "/proc", "/home", "/var"):
        path = os.path.join(folder, "mine")
        try_to(path, lambda: open(path, "w").close())
        try_to(path, lambda: os.mkdir(path))
    for path in ("/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"):
        try_to(path, lambda: open(path, "w").write("x"))
    try_to("mount", lambda: os.chroot("."))
    print("end")
    """
    assert (await python(sandbox, source)).stdout == "end\n"


async def test_what_one_program_writes_is_not_there_for_the_next(sandbox: Sandbox):
    needs(sandbox, Isolation.WRITING)
    write = "for folder in ('.', '/tmp', '/dev/shm'): open(folder + '/trace', 'w').close()"
    assert (await python(sandbox, write)).succeeded
    source = "import os; print(*[os.listdir(f) for f in ('.', '/tmp', '/dev/shm')])"
    assert (await python(sandbox, source)).stdout == "['main.py'] ['work'] []\n"


async def test_the_folder_is_new_for_each_program(sandbox: Sandbox):
    await python(sandbox, "open('trace', 'w').close()")
    result = await python(sandbox, "import os; print(os.listdir())")
    assert result.stdout == "['main.py']\n"


async def test_a_server_of_this_machine_cannot_be_reached(sandbox: Sandbox):
    needs(sandbox, Isolation.NETWORK)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0mint-test-server")
        local.listen()
        source = f"""
        import socket
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", {server.getsockname()[1]})),
            (socket.AF_INET, ("1.1.1.1", 53)),
            (socket.AF_UNIX, "\\0mint-test-server"),
        ):
            try:
                with socket.socket(family) as client:
                    client.settimeout(5)
                    client.connect(address)
                    print("reached", address)
            except OSError:
                pass
        print(socket.if_nameindex())
        """
        assert (await python(sandbox, source)).stdout == "[(1, 'lo')]\n"


async def test_other_processes_cannot_be_seen(sandbox: Sandbox):
    needs(sandbox, Isolation.PROCESSES)
    source = """
    import os
    print(os.getpid(), sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit()))
    """
    assert (await python(sandbox, source)).stdout == "2 [1, 2]\n"


async def test_killing_everything_that_can_be_killed_harms_nobody_else(sandbox: Sandbox):
    needs(sandbox, Isolation.SIGNALS)
    source = """
    import os, signal
    os.fork()
    for pid in (os.getppid(), -1, 1, *[int(p) for p in os.listdir("/proc") if p.isdigit()]):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            if pid != os.getpid():
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
    print("alone", flush=True)
    """
    result = await python(sandbox, source, Limits(wall_s=30.0))
    assert result.killed_by != "guard_lost"
    assert (await python(sandbox, "print('next')")).stdout == "next\n"


async def test_killing_its_process_group_ends_only_the_program(sandbox: Sandbox):
    result = await python(sandbox, "import os, signal; os.killpg(0, signal.SIGKILL)")
    assert (result.signal, result.killed_by) == (9, None)
    assert (await python(sandbox, "print('next')")).stdout == "next\n"


async def test_no_process_outside_can_be_traced(sandbox: Sandbox):
    needs(sandbox, Isolation.SIGNALS)
    source = """
    import ctypes, os
    trace = ctypes.CDLL(None, use_errno=True).ptrace
    PTRACE_SEIZE = 0x4206
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) != os.getpid() and trace(PTRACE_SEIZE, int(pid), 0, 0) == 0:
            print("traced", open(f"/proc/{pid}/cmdline").read())
    print("end")
    """
    result = await python(sandbox, source)
    traced = [line for line in result.stdout.splitlines() if "bwrap" not in line]
    assert traced == ["end"], result.stderr


async def test_the_program_has_no_rights_and_cannot_gain_any(sandbox: Sandbox):
    needs(sandbox, Isolation.SIGNALS)
    source = """
    import os
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(os.getuid() != 0, os.getgid() != 0, status["CapEff"].strip(), status["CapPrm"].strip(),
          status["NoNewPrivs"].strip())
    for become in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
        try:
            become()
            print("became")
        except OSError:
            pass
    """
    result = await python(sandbox, source)
    assert result.stdout == "True True 0000000000000000 0000000000000000 1\n"


async def test_the_program_has_no_terminal_and_a_session_of_its_own(sandbox: Sandbox):
    source = """
    import os
    print(os.getsid(0) != os.getsid(os.getppid()) if os.getppid() else None)
    try:
        os.open("/dev/tty", os.O_RDWR)
        print("terminal")
    except OSError:
        pass
    """
    assert "terminal" not in (await python(sandbox, source)).stdout


async def test_no_new_user_namespace_opens_the_kernel_to_it(sandbox: Sandbox):
    needs(sandbox, Isolation.READING)
    source = """
    import ctypes
    CLONE_NEWUSER = 0x10000000
    print(ctypes.CDLL(None).unshare(CLONE_NEWUSER))
    """
    assert (await python(sandbox, source)).stdout == "-1\n"


@pytest.mark.skipif(refusing_filter() is None, reason="no table of system calls for this machine")
async def test_calls_by_another_machines_numbers_do_not_get_past_the_filter(sandbox: Sandbox):
    source = """
    import ctypes, errno, platform
    X32 = 0x40000000
    if platform.machine() == "x86_64":
        c = ctypes.CDLL(None, use_errno=True)
        print(c.syscall(X32 | 39), errno.errorcode[ctypes.get_errno()])
    else:
        print("-1 ENOSYS")
    """
    assert (await python(sandbox, source)).stdout == "-1 ENOSYS\n"


async def test_daemons_do_not_outlive_the_program(sandbox: Sandbox):
    mark = token()
    source = """
    import os, time
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for fd in (0, 1, 2):
                    os.close(fd)
                time.sleep(600)
            os._exit(0)
    time.sleep(0.2)
    """
    result = await python(sandbox, source, PATIENT, mark)
    assert result.succeeded
    assert processes_with(mark) == []


async def test_a_daemon_that_keeps_stdout_open_does_not_hold_us_up(sandbox: Sandbox):
    source = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    print("done")
    """
    result = await python(sandbox, source)
    assert (result.stdout, result.succeeded) == ("done\n", True)
