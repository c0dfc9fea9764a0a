"""Benchmarks of the claims in docs/en/performance.md; run as `python -m benchmarks.NAME`.

What is set here has to be set before torch is loaded, and serves every system that is measured
alike: large temporaries in huge pages (a 151 MB one costs 37 ms then, and 93 ms without), and
OpenMP threads that sleep while they wait in place of taking the core from whoever runs next.
"""

import os

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched while a clock runs
