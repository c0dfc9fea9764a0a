"""What a server holds: open files and memory of its two processes, before, during and after."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PATIENCE_S = 200
SETTLE_S = 60
MORE_FILES = 20
"""Open files a server may have more than before: the pool of its database grows and stays."""
MORE_MEMORY = 200 * 2**20
"""Bytes it may hold more than before: allocators keep some of what was used once."""


@dataclass(frozen=True)
class Holding:
    files: int
    memory: int


class Footprint:
    """Watches a server while the block runs."""

    def __init__(self, data: Path) -> None:
        pids = [
            json.loads((data / name).read_text())["pid"] for name in ("server.json", "engine.json")
        ]
        self._processes = [psutil.Process(pid) for pid in pids]
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Footprint":
        self.before = self.most = self.now = self._holding()
        self._watch.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._watch.join()

    def wait_until_open(self, connections: int, given_up: Callable[[], bool]) -> None:
        """Return once so many connections are open at once, or they will never be."""
        end = time.monotonic() + PATIENCE_S
        while self._opened() < connections and not given_up() and time.monotonic() < end:
            time.sleep(0.1)

    def complaint(self, connections: int) -> str:
        """What is wrong with it, once the server had time to put things away; "" if nothing.

        Args:
            connections: that were to be open at once.
        """
        if self._opened() < connections:
            return f"only {self._opened()} connections were open at once, not {connections}"
        end = time.monotonic() + SETTLE_S
        while True:
            self.now = self._holding()
            files = self.now.files - self.before.files
            memory = self.now.memory - self.before.memory
            if files <= MORE_FILES and memory <= MORE_MEMORY:
                return ""
            if time.monotonic() > end:
                return f"the server keeps {files} files and {memory >> 20} MiB more than before"
            time.sleep(0.5)

    def __str__(self) -> str:
        return "; ".join(
            f"{when} {it.files} files, {it.memory >> 20} MiB"
            for when, it in (("before", self.before), ("at most", self.most), ("after", self.now))
        )

    def _opened(self) -> int:
        return self.most.files - self.before.files

    def _look(self) -> None:
        while not self._over.wait(0.2):
            now = self._holding()
            self.most = Holding(max(self.most.files, now.files), max(self.most.memory, now.memory))

    def _holding(self) -> Holding:
        return Holding(
            sum(process.num_fds() for process in self._processes),
            sum(process.memory_info().rss for process in self._processes),
        )
