"""Waiting for something that another thread or process does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], timeout_s: float = 30.0) -> T:
    """Look until there is something to see, and return it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if seen := look():
            return seen
        time.sleep(0.01)
    raise AssertionError(f"still nothing after {timeout_s} s: {look}")
