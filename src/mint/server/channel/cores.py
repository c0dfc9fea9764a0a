"""How many threads an engine shall compute with, and why: decided before torch is imported."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


@dataclass(frozen=True)
class Threads:
    """The number of CPU threads of an engine."""

    count: int
    reason: str
    """For people: "2 cores by affinity, no cgroup quota"."""

    def __str__(self) -> str:
        return f"{self.count} {'thread' if self.count == 1 else 'threads'} ({self.reason})"


def choose_threads(asked: int | None, environ: Mapping[str, str], *, root: Path = _ROOT) -> Threads:
    """The setting if there is one, else OMP_NUM_THREADS if the user has set it, else the cores.

    Args:
        asked: the setting `threads`.
        root: where /proc and /sys are; a test has its own.
    """
    if asked is not None:
        return Threads(asked, "the setting threads")
    told = environ.get("OMP_NUM_THREADS", "")
    if told.isdecimal() and int(told):
        return Threads(int(told), "OMP_NUM_THREADS")
    return usable_cores(root)


def usable_cores(root: Path = _ROOT) -> Threads:
    """The cores this process may use: by affinity, and by its control group's quota if that is less.

    `os.cpu_count()` tells the machine's: in a container limited to 2 of 64 cores, 64 OpenMP threads
    would take turns and each parallel region would wait for the last of them. Of two hyper-threads
    one counts: they share the multipliers that matrix products wait for.
    """
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cpus is None:
        count = os.cpu_count() or 1
        return Threads(count, f"{count} processors of the machine")
    cores = len({_siblings(root, cpu) for cpu in cpus})
    found = f"{cores} {'core' if cores == 1 else 'cores'} by affinity"
    if cores < len(cpus):
        found += f", {len(cpus)} hyper-threads"
    quota = min(_quotas(root), default=None)
    if quota is None:
        return Threads(cores, f"{found}, no cgroup quota")
    return Threads(max(1, min(cores, int(quota))), f"{found}, cgroup quota {quota:g}")


def _siblings(root: Path, cpu: int) -> str:
    """What is equal for the hyper-threads of one core; the processor alone if nobody says."""
    topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    return _text(topology / "thread_siblings_list") or str(cpu)


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas of this process's control group and of those around it, in cores."""
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for folder in _upwards(root / "sys/fs/cgroup", path):
                quota, _, period = (_text(folder / "cpu.max") or "").partition(" ")
                yield from _cores(quota, period)
        elif "cpu" in controllers.split(","):
            for mount in ("cpu", "cpu,cpuacct"):
                for folder in _upwards(root / "sys/fs/cgroup" / mount, path):
                    quota = _text(folder / "cpu.cfs_quota_us") or ""
                    yield from _cores(quota, _text(folder / "cpu.cfs_period_us") or "")


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The group's folder and those around it. In a container the path may be the host's, and only
    the mount itself is there."""
    folder = mount / path.lstrip("/")
    yield folder
    while folder != mount and folder != folder.parent:
        folder = folder.parent
        yield folder


def _cores(quota: str, period: str) -> Iterator[float]:
    """A quota in cores; nothing for "max" and -1, which mean that there is none."""
    if quota.isdecimal() and period.isdecimal() and int(period):
        yield int(quota) / int(period)


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return None
