"""What a sweep keeps of its configurations: `sweep.json`, from which it goes on when started again."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from mint.recipe.exceptions import ConfigurationError, DataFormatError
from mint.recipe.stores.whole_files import write_whole

SCHEMA_VERSION = 1
FILE = "sweep.json"
_CLAIM = "running.pid"

Setting = str | int | float | bool | None
"""A value of one axis of a grid."""


class State(StrEnum):
    """How far a configuration has come."""

    waiting = "waiting"
    running = "running"
    finished = "finished"
    failed = "failed"


@dataclass(frozen=True)
class Entry:
    """One configuration of a sweep."""

    name: str
    settings: Mapping[str, Setting]
    """What sets it apart from the others; the columns of tables."""
    log_path: str
    fingerprint: str
    """Of its whole config: the same name with another config is another configuration."""
    state: State = State.waiting
    error: str | None = None
    """Why it failed, in a line."""


@dataclass(frozen=True)
class SweepRecord:
    """All configurations, in the order in which they were first asked for."""

    title: str
    entries: tuple[Entry, ...] = ()

    def find(self, name: str) -> Entry | None:
        return next((one for one in self.entries if one.name == name), None)

    def with_entries(self, changed: Iterable[Entry]) -> "SweepRecord":
        """The record with these in place of those of the same name, new ones at the end."""
        by_name = {one.name: one for one in self.entries} | {one.name: one for one in changed}
        return replace(self, entries=tuple(by_name.values()))


def read_record(folder: Path) -> SweepRecord | None:
    """The record of a sweep folder, or None if there is none.

    Raises:
        DataFormatError: there is one, and it cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {found['schema_version']}, not {SCHEMA_VERSION}")
        entries = [_entry_from(one) for one in found["configurations"]]
        return SweepRecord(found["title"], tuple(entries))
    except (KeyError, TypeError, ValueError) as error:
        raise DataFormatError(
            f"{path} is no record of a sweep that can be read ({error}). Give the sweep another "
            "folder, or remove the file to begin anew."
        ) from error


def write_record(folder: Path, record: SweepRecord) -> None:
    """Replace the record at once: a sweep that is killed leaves the old one or the new one."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "title": record.title,
        "configurations": [asdict(one) for one in record.entries],
    }
    write_whole(folder / FILE, json.dumps(content, indent=1))


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a sweep folder for this process: two that run the same configurations would write into
    the same run folders.

    Raises:
        ConfigurationError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    claim = folder / _CLAIM
    while True:
        try:
            with claim.open("x") as file:
                file.write(str(os.getpid()))
            break
        except FileExistsError:
            holder = holder_of(folder)
            if holder is not None:
                raise ConfigurationError(
                    f"process {holder} is running the sweep in {folder}. Wait for it, give this "
                    f"sweep another folder, or, if that process is something else, remove {claim}."
                ) from None
            claim.unlink(missing_ok=True)  # left by a process that was killed
    try:
        yield
    finally:
        claim.unlink(missing_ok=True)


def holder_of(folder: Path) -> int | None:
    """The living process that holds a sweep folder, or None."""
    try:
        process = int((folder / _CLAIM).read_text())
    except (OSError, ValueError):
        return None
    try:
        os.kill(process, 0)
    except PermissionError:
        pass  # alive, and another user's
    except OSError:
        return None
    return process


def _entry_from(found: Mapping[str, Any]) -> Entry:
    return Entry(**{**found, "state": State(found["state"])})


def columns_of(entries: Sequence[Entry]) -> list[str]:
    """Names of all settings, in the order in which they appear."""
    return list(dict.fromkeys(name for one in entries for name in one.settings))
