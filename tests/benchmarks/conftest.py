"""The benchmarks set variables for their own processes when they are imported; the other tests of
this run keep theirs."""

import os

_before = dict(os.environ)

import benchmarks as benchmarks  # noqa: E402

for _name in set(os.environ) - set(_before):
    del os.environ[_name]
