"""Rivals in processes of their own, which wait for their turn.

A child prints one line of JSON when it is ready, then reads a line of JSON for each piece of work
and answers with one; it ends when its input does.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT


class Child:
    """A process that works when it is told to."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.ready: dict[str, Any] = self._read()
        """What it says of itself."""

    def work(self, **told: Any) -> dict[str, Any]:
        """One piece of work, and what came of it."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """Let it end, which it does at the end of its input."""
        assert self._process.stdin
        self._process.stdin.close()
        self.status = self._process.wait(60)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self._process.args} ended with status {self._process.wait()}; its last words "
                "are above."
            )
        return json.loads(line)


class Turns:
    """The child's side. Whatever else prints goes to stderr from now on."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, told: dict[str, Any]) -> None:
        print(json.dumps(told), file=self._out, flush=True)

    def next(self) -> dict[str, Any] | None:
        """Wait for the next piece of work; None once there is none."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def serve(self, work: Callable[..., dict[str, Any]]) -> None:
        """Do each piece of work as it comes."""
        while (told := self.next()) is not None:
            self.say(work(**told))


def rival_arguments() -> argparse.Namespace:
    """What rl_step.py tells a rival."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of the base model's files")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser.parse_args()
