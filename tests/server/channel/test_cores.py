"""How many threads an engine gets is found out, can be told, and is said."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from mint.server.channel.cores import choose_threads, usable_cores
from mint.server.channel.spawn import engine_environment
from mint.server.settings import ServerSettings

CPUS = 8


@pytest.fixture(autouse=True)
def affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(CPUS)))


def machine(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2 = "0::/pod/me\n"
V1 = "4:memory:/pod\n3:cpuset:/pod\n2:cpu,cpuacct:/pod/me\n0::/\n"


@pytest.mark.parametrize(
    ("files", "count", "quota"),
    [
        ({}, 8, "no cgroup quota"),
        ({"proc/self/cgroup": V2}, 8, "no cgroup quota"),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/me/cpu.max": "max 100000"}, 8, "no cgroup quota"),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/me/cpu.max": "250000 100000"}, 2, "quota 2.5"),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/cpu.max": "50000 100000"}, 1, "quota 0.5"),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "300000 100000"}, 3, "quota 3"),
        ({
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/cpu/pod/me/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/pod/me/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "400000",
            "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000",
        }, 4, "quota 4"),
        ({
            "proc/self/cgroup": V1,  # in a container: the path is the host's
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        }, 2, "quota 2"),
    ],
)  # fmt: skip
def test_a_control_groups_quota_limits_the_threads(tmp_path, files, count, quota):
    found = usable_cores(machine(tmp_path, files))

    assert found.count == count
    assert found.reason.startswith("8 cores by affinity, ")
    assert found.reason.endswith(quota)


def test_of_two_hyper_threads_one_counts(tmp_path):
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    pairs = {topology.format(cpu): f"{cpu % 4},{cpu % 4 + 4}\n" for cpu in range(CPUS)}

    found = usable_cores(machine(tmp_path, pairs))

    assert str(found) == "4 threads (4 cores by affinity, 8 hyper-threads, no cgroup quota)"


@pytest.mark.parametrize(
    ("asked", "variable", "chosen"),
    [
        (3, "5", "3 threads (the setting threads)"),
        (None, "5", "5 threads (OMP_NUM_THREADS)"),
        (None, "", "8 threads (8 cores by affinity, no cgroup quota)"),
        (None, "4,2", "8 threads (8 cores by affinity, no cgroup quota)"),
    ],
)
def test_the_setting_wins_over_the_variable_and_that_over_the_cores(
    tmp_path, asked, variable, chosen
):
    assert str(choose_threads(asked, {"OMP_NUM_THREADS": variable}, root=tmp_path)) == chosen


def test_what_torch_reads_once_is_set_and_what_a_user_has_set_stays(tmp_path):
    settings = ServerSettings(data=tmp_path, models=("tiny",), threads=3)

    alone = engine_environment(settings, {"PATH": "/bin"})
    told = engine_environment(settings, {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "7"})

    assert alone == {
        "PATH": "/bin", "OMP_NUM_THREADS": "3", "OMP_WAIT_POLICY": "PASSIVE",
        "THP_MEM_ALLOC_ENABLE": "1", "MALLOC_ARENA_MAX": "1",
    }  # fmt: skip
    assert (told["OMP_WAIT_POLICY"], told["OMP_NUM_THREADS"]) == ("ACTIVE", "3")
