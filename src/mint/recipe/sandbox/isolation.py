"""What a backend keeps a program from, as data that a caller can test."""

from collections.abc import Collection
from enum import StrEnum


class Isolation(StrEnum):
    """One thing that a program cannot do. A backend lists those it sees to."""

    NETWORK = "network"
    READING = "reading"
    WRITING = "writing"
    PROCESSES = "processes"
    SIGNALS = "signals"
    ENVIRONMENT = "environment"
    LEFTOVERS = "leftovers"
    PROCESS_COUNT = "process_count"
    DISK = "disk"


WITHOUT = {
    Isolation.NETWORK: "connect to the network, this machine's services included",
    Isolation.READING: "read files of this machine that its user may read",
    Isolation.WRITING: "write outside of its private folder where its user may write",
    Isolation.PROCESSES: "see which processes run here, and their arguments",
    Isolation.SIGNALS: "signal, kill or inspect processes of your user, this one included",
    Isolation.ENVIRONMENT: "read your environment variables",
    Isolation.LEFTOVERS: "leave a process behind, if it kills its guard first",
    Isolation.PROCESS_COUNT: "use up your user's processes for a moment",
    Isolation.DISK: "fill the disk for a moment, and outside of its folder for longer",
}
"""What a program can do where a backend does not see to it."""


def weaknesses(isolates: Collection[Isolation]) -> list[str]:
    """What a program can do under a backend that sees to no more than `isolates`."""
    return [text for isolation, text in WITHOUT.items() if isolation not in isolates]


class WeakIsolationWarning(UserWarning):
    """Programs run under a backend that leaves some things possible; the text lists them."""
