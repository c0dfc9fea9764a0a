"""How much of a machine this process may use."""

import os


def usable_cores() -> int:
    """The cores that this process is bound to; where that cannot be asked, those of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
