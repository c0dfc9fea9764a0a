"""A Python with one version of the SDK in memory, which becomes one script after the other.

Importing an SDK takes half a second, with torch two, and a run has three hundred scripts. So a
version is imported once, and each script runs in a fork: as new as a process of its own, since an
import opens no connection and starts no thread.

Run by the SDK's own Python. Reads lines of JSON, [script, log, seconds], and answers each with the
exit status; minus a signal's number where one ended it.
"""

import json
import os
import runpy
import signal
import sys

import tinker


def main() -> None:
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    assert threads == 1, f"importing tinker {tinker.__version__} starts threads: no fork is safe"
    for line in sys.stdin:
        script, log, seconds = json.loads(line)
        process = os.fork()
        if process == 0:
            become(script, log, seconds)
            return
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def become(script: str, log: str, seconds: int) -> None:
    """Run a script as Python would; it is ended by a signal when its time is over."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for target, source in ((0, nothing), (1, out), (2, out)):
        os.dup2(source, target)
    signal.alarm(seconds)
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
