"""The keeper of one sandbox, and the guards it forks: one between us and each program.

A guard starts its program, watches what it uses, ends it with everything it has started, and says
what happened. It stands apart because only a parent can be given the orphans of its descendants
(Linux: "subreaper"), whatever session or group they moved to; and making a whole training process one
would hand it the orphans of everything else that runs there. The keeper is there because a Python
takes tens of milliseconds to start, and a fork of a small one takes two.

Run as a script of its own. Its stdin is a socket, on which each byte comes with file descriptors:
the program's stdin, stdout and stderr; the lifeline; the report; and what the program inherits.

The lifeline gives one line, the order (JSON, see `Order` in launch.py), and stays open: once it is at
its end, be it closed or its owner dead, the program is ended. The report takes a line with the guard's
process number, then one with what happened, both JSON.

Standard library only: nothing of ours is imported, so that it stays small.
"""

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress

TICK_S = 0.02
FOLDER_EVERY = 5  # ticks: a walk through a thousand files takes milliseconds
GIVE_UP_S = 10.0
MOST_FDS = 250
STATUS, GATE = 3, 4  # as bubblewrap sees them
OUT_OF_THE_WAY = 300  # above all that is received, below the usual limit of 1024
PAGE_BYTES = resource.getpagesize()
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
LINUX = sys.platform == "linux"


def main():
    if LINUX:
        prctl(PR_SET_DUMPABLE, 0)  # a program under the same user can neither trace nor read us
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards speak for themselves
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * OUT_OF_THE_WAY:  # as on macOS
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * OUT_OF_THE_WAY, hard))
    with socket.socket(fileno=0) as requests:
        while True:
            word, fds, _, _ = socket.recv_fds(requests, 1, MOST_FDS)
            if not word:
                return
            if os.fork() == 0:
                requests.close()
                guard(fds)
                os._exit(0)
            for fd in fds:
                os.close(fd)


def guard(fds):
    """See one program through. This process is a fork of the keeper and lives as long."""
    *stdio, lifeline, report = fds[:5]
    os.write(report, b"%d\n" % os.getpid())
    order = json.loads(read_line(lifeline))
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        said = Run(order, lifeline, stdio, fds[5:]).to_the_end()
    except Exception as error:
        end_all(order["user"])
        said = {"error": f"its guard failed with {type(error).__name__}: {error}"}
    os.write(report, json.dumps(said).encode())


def read_line(fd):
    read = b""
    while not read.endswith(b"\n"):
        more = os.read(fd, 65536)
        if not more:
            os._exit(0)  # nobody wants it any more
        read += more
    return read


def prctl(option, value):
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Run:
    """One program, from its start until nothing of it is left."""

    def __init__(self, order, lifeline, stdio, inherited):
        self.order = order
        self.lifeline = lifeline
        self.stdio = stdio
        self.inherited = inherited
        self.woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.ended = None  # the wait status of the program
        self.reason = None
        self.peak = 0
        self.inside = None  # bubblewrap's process 1, as we see it
        self.status = b""  # what bubblewrap says of itself

    def to_the_end(self):
        namespaces = Namespaces() if self.order["namespaces"] else None
        self.main, failed = start(self.order, namespaces, self.stdio, self.inherited)
        began = time.monotonic()
        if failed:
            os.waitpid(self.main, 0)
            return {"error": failed}
        if namespaces:
            self.inside = namespaces.admit(self.order["namespaces"], self.order["user"])
            began = time.monotonic()
        self.watch(began)
        wall_s = time.monotonic() - began
        left = end_all(self.order["user"])
        if namespaces:
            self.status = namespaces.last_words()
        return self.said(wall_s, left)

    def watch(self, began):
        poll = select.poll()
        poll.register(self.lifeline, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        limits, tick = self.order["limits"], 0
        deadline = began + limits["wall_s"]
        while True:
            left_s = deadline - time.monotonic()
            ready = poll.poll(1000 * max(0.0, min(TICK_S, left_s)))
            with suppress(BlockingIOError):
                os.read(self.woken, 4096)
            self.reap()
            if self.ended is not None:
                return
            if any(fd == self.lifeline for fd, _ in ready):
                self.reason = "stopped"
            elif left_s <= 0:
                self.reason = "wall"
            else:
                self.reason = self.over(limits, tick)
                tick += 1
            if self.reason:
                return

    def reap(self):
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.main:
                    self.ended = status

    def over(self, limits, tick):
        """The watched limit that is passed, if one is."""
        used = usage()
        self.peak = max(self.peak, used["memory_bytes"])
        if used["memory_bytes"] > limits["memory_bytes"]:
            return "memory"
        if used["cpu_s"] > limits["cpu_s"]:
            return "cpu"
        if used["tasks"] > limits["processes"] + (2 if self.inside else 0):  # bubblewrap has two
            return "processes"
        if tick % FOLDER_EVERY == 0:
            return self.over_in_folder(limits)
        return None

    def over_in_folder(self, limits):
        if self.inside:
            try:
                disk = os.statvfs(f"/proc/{self.inside}/root{self.order['folder']}")
            except OSError:  # not set up yet, or over
                return None
            # Before the folder is mounted this is the file system of the machine: far more files.
            is_ours = disk.f_blocks * disk.f_frsize <= limits["disk_bytes"] + PAGE_BYTES
            return (
                "files" if is_ours and disk.f_files - disk.f_ffree > limits["files"] + 2 else None
            )
        files, size = folder_usage(self.order["folder"], limits["files"])
        if files > limits["files"]:
            return "files"
        return "disk" if size > limits["disk_bytes"] else None

    def said(self, wall_s, left):
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = self.ended
        code = None if ended is None else os.waitstatus_to_exitcode(ended)
        if self.order["namespaces"] and code is not None and self.reason is None:
            if (
                code == 1 and b'"exit-code"' not in self.status
            ):  # it says so only of what it started
                return {"error": "bubblewrap could not start it"}
            if code > 128:  # how it reports a signal
                code = 128 - code
        if code is None:
            code = -signal.SIGKILL  # ours
        return {
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "reason": self.reason,
            "wall_s": wall_s,
            "cpu_s": spent.ru_utime + spent.ru_stime,
            "peak_memory_bytes": self.peak,
            "left": left,
        }


class Namespaces:
    """bubblewrap's set-up, held until its process 1 has the limits that only count inside.

    The kernel counts processes per user and user namespace, so a limit set before would count all
    that the user has elsewhere.
    """

    def __init__(self):
        self.status, self.status_end = os.pipe()
        self.gate_end, self.gate = os.pipe()
        self.read = b""

    def arguments(self):
        return ["--json-status-fd", str(STATUS), "--block-fd", str(GATE)]

    def places(self):
        return {STATUS: self.status_end, GATE: self.gate_end}

    def admit(self, limits, user):
        """Process 1 as we see it, once it has its limits; None if bubblewrap failed before."""
        os.close(self.status_end)
        os.close(self.gate_end)
        while b"}" not in self.read:
            more = os.read(self.status, 4096)
            if not more:
                return None
            self.read += more
        pid = json.loads(self.read[: self.read.index(b"}") + 1])["child-pid"]
        as_user(user, lambda: set_limits(pid, limits))
        with suppress(BrokenPipeError):
            os.write(self.gate, b"x")
        return pid

    def last_words(self):
        while more := os.read(self.status, 4096):
            self.read += more
        return self.read


# ------------------------------------------------------------------- start


def start(order, namespaces, stdio, inherited):
    """Start the program; returns its pid and, if it did not start, why."""
    argv = order["argv"]
    places = dict(enumerate(stdio)) | dict(enumerate(inherited, order["first_inherited"]))
    if namespaces:
        argv = [argv[0], *namespaces.arguments(), *argv[1:]]
        places |= namespaces.places()
    problem, low_end = os.pipe()
    problem_end = fcntl.fcntl(low_end, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    os.close(low_end)
    pid = os.fork()
    if pid == 0:
        try:
            become(order, argv, places, problem_end)
        except BaseException as error:
            with suppress(OSError):
                os.write(problem_end, f"{type(error).__name__}: {error}".encode())
        os._exit(127)
    os.close(problem_end)
    for fd in (*stdio, *inherited):
        os.close(fd)
    return pid, os.read(problem, 4096).decode("utf-8", "replace")


def become(order, argv, places, problem_end):
    """Turn this process, a fork of the guard, into the program.

    Args:
        places: number that a descriptor shall have in the program -> the one it has here.
    """
    put_in_place(places, problem_end)
    signal.set_wakeup_fd(-1)
    os.setsid()
    for number in {signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o077)
    if LINUX:
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as mine:
            mine.write("1000")  # short of memory, the kernel shall take this and not the training
    if order["chdir"]:
        os.chdir(order["chdir"])
    for name, value in order["rlimits"].items():
        if name == "RLIMIT_NPROC" and order["user"] is None:
            value += tasks_of(os.getuid())  # the kernel counts all that the user has
        limit(getattr(resource, name), value)
    if order["user"] is not None:
        change_user(order["user"])
    if LINUX:
        if not order["namespaces"]:
            prctl(
                PR_SET_NO_NEW_PRIVS, 1
            )  # bubblewrap sets it, and where it is setuid needs it unset
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execve(argv[0], argv, order["env"])


def limit(kind, value):
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (OSError, ValueError):  # macOS has some of them in name only
        if LINUX:
            raise


def set_limits(pid, limits):
    for name, value in limits.items():
        with suppress(ProcessLookupError):
            resource.prlimit(pid, getattr(resource, name), (value, value))


def as_user(user, act):
    """Do something as the program's user, if that is another than ours.

    Root in a container often lacks the right to set the limits of others; the same user needs none.
    """
    if user is None:
        act()
        return
    pid = os.fork()
    if pid == 0:
        try:
            change_user(user)
            act()
        finally:
            os._exit(0)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def change_user(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def put_in_place(places, problem_end):
    """Give descriptors their numbers and close all others, except for one that exec closes."""
    away = {place: fcntl.fcntl(fd, fcntl.F_DUPFD, OUT_OF_THE_WAY) for place, fd in places.items()}
    for place, fd in away.items():
        os.dup2(fd, place)
    keep_only({*places, problem_end})


def keep_only(kept):
    folder = "/proc/self/fd" if LINUX else "/dev/fd"
    try:
        open_now = {int(name) for name in os.listdir(folder)}
    except OSError:
        open_now = set(range(256))
    for fd in open_now - kept:
        with suppress(OSError):
            os.close(fd)


# ------------------------------------------------------------------- watch


def descendants():
    """Every process below this one."""
    found, below = [], [os.getpid()]
    while below:
        pid = below.pop()
        for child in children(pid):
            found.append(child)
            below.append(child)
    return found


def children(pid):
    pids = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as listed:
                pids += map(int, listed.read().split())
    return pids


def usage():
    """What all of the program's processes use together, and what those that ended have used."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    tasks, pages, cpu_s = 0, 0, gone.ru_utime + gone.ru_stime
    for pid in descendants():
        with suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/stat", "rb") as stat:
            told = stat.read().rpartition(b")")[2].split()
            cpu_s += sum(map(int, told[11:15])) / TICKS_PER_S
            tasks += int(told[17])
            pages += int(told[21])
    return {"tasks": tasks, "memory_bytes": pages * PAGE_BYTES, "cpu_s": cpu_s}


def tasks_of(user):
    """How many processes and threads a user has now."""
    count = 0
    for name in os.listdir("/proc") if LINUX else ():
        if name.isdigit():
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def folder_usage(folder, most):
    """How many entries lie below a folder, and their size; counting ends above `most`."""
    files, size, to_see = 0, 0, [folder]
    while to_see and files <= most:
        with suppress(OSError), os.scandir(to_see.pop()) as entries:
            for entry in entries:
                files += 1
                if files > most:
                    break
                with suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        to_see.append(entry.path)
    return files, size


# --------------------------------------------------------------------- end


def end_all(user):
    """Kill whatever is below this process, and wait for it. Returns how many would not go.

    Each may start others while we look. A user of its own is killed whole, by one call; otherwise
    each is first forbidden to start more. Orphans come to us, so that in the end there is nobody
    left to wait for.
    """
    give_up = time.monotonic() + GIVE_UP_S
    while time.monotonic() < give_up:
        if user is not None:
            as_user(user, lambda: os.kill(-1, signal.SIGKILL))
        for pid in descendants():
            with suppress(OSError):
                if LINUX and user is None:
                    resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return 0
        time.sleep(0.001)
    return len(descendants())


if __name__ == "__main__":
    main()
