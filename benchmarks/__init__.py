"""Benchmarks of the claims in docs/en/performance.md; run as `python -m benchmarks.NAME`.

What is set here has to be set before torch is loaded, and serves every system that is measured
alike: large temporaries in huge pages (a 151 MB one costs 37 ms then, and 93 ms without), one heap
for all threads (as `mint serve` gives its engine), and OpenMP threads that sleep while they wait in
place of taking the core from whoever runs next.
"""

import ctypes
import os
import sys

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched while a clock runs
os.environ.setdefault("MALLOC_ARENA_MAX", "1")  # for the processes that a benchmark starts
if sys.platform == "linux":  # for this one glibc has read its variables already
    _M_ARENA_MAX = -8
    getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(_M_ARENA_MAX, 1)
