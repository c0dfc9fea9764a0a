"""How many CPU cores this process may use."""

import os
from pathlib import Path

_CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(cpu_max: Path = _CGROUP_CPU_MAX) -> int:
    """Cores by affinity, and by the cgroup's quota where there is one; at least 1.

    `os.cpu_count()` tells the machine's: in a container limited to 2 of 64 cores, 64 OpenMP threads
    would take turns and each parallel region would wait for the last of them.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = cpu_max.read_text().split()
        if quota != "max":
            return max(1, min(cores or 1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # no cgroup v2: affinity decides
    return cores or 1
