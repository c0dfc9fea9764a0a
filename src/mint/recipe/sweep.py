"""Many runs from one grid: side by side, each once, compared on one page.

    settings = sweep.grid(kl=[0.0, 0.02], temperature=[0.7, 1.0])
    report = await sweep.run(
        [sweep.Configuration(name_of(one), one, config_of(**one)) for one in settings],
        folder="runs/first-sweep",
    )

A sweep that was interrupted goes on when it is started again with the same folder: configurations
that are finished are not run again, and the others resume from their last checkpoint. One that
fails is noted and leaves the others alone. `sweep.html` in the folder shows how far things are, and
at the end how they compare.
"""

import asyncio
import hashlib
import itertools
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import chz

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.pages.sweep_page import sweep_page
from mint.recipe.service import Service
from mint.recipe.stores.checkpoints import load_checkpoints_file
from mint.recipe.stores.jsonable import jsonable
from mint.recipe.stores.sweep_record import (
    Entry,
    Setting,
    State,
    SweepRecord,
    claimed,
    holder_of,
    read_record,
    write_record,
)
from mint.recipe.stores.whole_files import write_whole
from mint.recipe.tasks import task_group

PAGE = "sweep.html"
_log = logging.getLogger("mint.recipe.sweep")
_NOT_THE_RUN = ("log_path", "service_client", "session_name", "wandb_name")
"""Fields of a config that say where and how a run is watched, and not what it computes."""

Train = Callable[..., Awaitable[object]]
"""Called as `train(config=config)`; `rl.train.main` is one."""


@dataclass(frozen=True)
class Configuration:
    """One run of a sweep."""

    name: str
    """Its own within the sweep: by it, a sweep that goes on knows what is finished."""
    settings: Mapping[str, Setting]
    """What sets it apart from the others, for tables and legends."""
    config: Any
    """What `train` takes. It has a log_path of its own, and no two share one."""


@dataclass(frozen=True)
class SweepReport:
    """How a sweep went."""

    folder: Path
    entries: tuple[Entry, ...]
    """One per configuration that was asked for, in that order."""

    @property
    def page(self) -> Path:
        return self.folder / PAGE

    @property
    def failed(self) -> list[Entry]:
        return [one for one in self.entries if one.state is State.failed]


def grid(**axes: Sequence[Setting]) -> list[dict[str, Any]]:
    """Every combination, the last axis going round fastest. Values are as they were given."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


async def run(
    configurations: Sequence[Configuration],
    folder: str | Path,
    *,
    train: Train | None = None,
    side_by_side: int = 4,
    service_client: Any | None = None,
    title: str = "Sweep",
    on_change: Callable[[Configuration, Entry], None] | None = None,
) -> SweepReport:
    """Run what is not finished yet, and compare all.

    Args:
        folder: for `sweep.json` and `sweep.html`; the runs have their own.
        train: what makes a run of a config; None: `mint.recipe.rl.train.main`.
        side_by_side: runs at a time. They share a server's time, not their results: a server of
            ours works on the requests of several runs together. 1 where times are compared.
        service_client: a connected client for all runs; None: one is made, if any config wants it.
        on_change: told of each configuration as it begins (`running`), and when it is `finished` or
            `failed`; of one that was finished before, that only.

    Raises:
        ConfigurationError: names or log folders that are not unique, or a name whose config is
            another one than in the sweep that the folder holds; or another process runs it.
    """
    if side_by_side < 1:
        raise ConfigurationError(f"side_by_side={side_by_side}: give 1 or more.")
    _check_unique(configurations)
    async with AsyncExitStack() as held:
        held.enter_context(claimed(Path(folder)))
        progress = _Progress.open(Path(folder), title, configurations, on_change)
        waiting = [one for one in configurations if not progress.skips(one)]
        train = train or _rl_main()
        clients = await _shared_clients(waiting, service_client, held)
        await progress.show()
        places = asyncio.Semaphore(side_by_side)
        async with task_group() as tasks:
            for one in waiting:
                training = partial(train, config=_with_client(one.config, clients))
                tasks.create_task(_run_one(one, training, places, progress))
    return progress.report(configurations)


async def _run_one(
    one: Configuration,
    train: Callable[[], Awaitable[object]],
    places: asyncio.Semaphore,
    progress: "_Progress",
) -> None:
    async with places:
        await progress.change(one, State.running)
        try:
            await train()
        except Exception as error:  # noted; the others go on
            _log.error("configuration %s failed", one.name, exc_info=error)
            await progress.change(one, State.failed, _in_a_line(error))
        else:
            await progress.change(one, State.finished)


def can_go_on(folder: str | Path, configurations: Sequence[Configuration]) -> bool:
    """Whether a folder holds a sweep of just these configurations that nobody finishes.

    For scripts that make a new folder for each sweep, and want an interrupted one taken up again.
    """
    record = read_record(Path(folder))
    if record is None or holder_of(Path(folder)) is not None:
        return False
    found = {one.name: one.fingerprint for one in record.entries}
    asked = {one.name: fingerprint(one.config) for one in configurations}
    return found == asked and any(one.state is not State.finished for one in record.entries)


def is_finished(log_path: str) -> bool:
    """Whether a run has written its last checkpoint down."""
    return any(record.final for record in load_checkpoints_file(log_path))


def fingerprint(config: Any) -> str:
    """A short name for what a config computes: equal for equal fields, in this process or another.

    Fields that cannot be written as JSON count by their repr, less the address in it.
    """
    fields = jsonable(config)
    if isinstance(fields, dict):
        fields = {name: value for name, value in fields.items() if name not in _NOT_THE_RUN}
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", json.dumps(fields, sort_keys=True))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Progress:
    """The record of a sweep, written down and shown whenever a configuration changes."""

    def __init__(
        self,
        folder: Path,
        record: SweepRecord,
        on_change: Callable[[Configuration, Entry], None] | None,
    ) -> None:
        self._folder = folder
        self._record = record
        self._on_change = on_change
        self._writing = asyncio.Lock()
        """One page at a time, or an older one could be written over a newer."""

    @classmethod
    def open(
        cls,
        folder: Path,
        title: str,
        configurations: Sequence[Configuration],
        on_change: Callable[[Configuration, Entry], None] | None,
    ) -> "_Progress":
        record = read_record(folder) or SweepRecord(title)
        entries = [_entry_of(one, record.find(one.name), folder) for one in configurations]
        return cls(folder, record.with_entries(entries), on_change)

    def skips(self, one: Configuration) -> bool:
        """Whether a configuration is finished; if so, tells of it."""
        entry = self._entry(one)
        if entry.state is not State.finished:
            return False
        if self._on_change is not None:
            self._on_change(one, entry)
        return True

    async def change(self, one: Configuration, state: State, error: str | None = None) -> None:
        entry = replace(self._entry(one), state=state, error=error)
        self._record = self._record.with_entries([entry])
        if self._on_change is not None:
            self._on_change(one, entry)
        await self.show()

    async def show(self) -> None:
        """Write record and page. The page is an extra: a sweep does not end because it fails."""
        write_record(self._folder, self._record)
        async with self._writing:
            try:
                page = await asyncio.to_thread(sweep_page, self._record)
                write_whole(self._folder / PAGE, page)
            except Exception as error:
                _log.warning("%s could not be written: %s", self._folder / PAGE, error)

    def report(self, configurations: Sequence[Configuration]) -> SweepReport:
        return SweepReport(self._folder, tuple(self._entry(one) for one in configurations))

    def _entry(self, one: Configuration) -> Entry:
        entry = self._record.find(one.name)
        assert entry is not None  # `open` made one for each
        return entry


def _entry_of(one: Configuration, before: Entry | None, folder: Path) -> Entry:
    """The entry to begin with: finished if it was and its run folder still says so."""
    entry = Entry(one.name, dict(one.settings), str(one.config.log_path), fingerprint(one.config))
    if before is None:
        return entry
    if before.fingerprint != entry.fingerprint:
        raise ConfigurationError(
            f"{folder} holds a sweep whose configuration {one.name!r} is another one than now. "
            "Give this sweep another folder, or the configuration another name."
        )
    if before.log_path != entry.log_path:
        raise ConfigurationError(
            f"configuration {one.name!r} logs to {entry.log_path}, and to {before.log_path} in the "
            f"sweep that {folder} holds. Give it the same log_path, or the sweep another folder."
        )
    done = before.state is State.finished and is_finished(entry.log_path)
    return replace(entry, state=State.finished) if done else entry


def _check_unique(configurations: Sequence[Configuration]) -> None:
    for what, values in (
        ("name", [one.name for one in configurations]),
        ("log_path", [str(Path(one.config.log_path).resolve()) for one in configurations]),
    ):
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            raise ConfigurationError(
                f"two configurations have the same {what}: {', '.join(sorted(twice))}. Each needs "
                "its own."
            )


async def _shared_clients(
    configurations: Sequence[Configuration], given: Any | None, held: AsyncExitStack
) -> Mapping[str | None, Any]:
    """A connected client per server that a config names and brings no client for. What is opened
    here is closed with `held`."""
    urls = {one.config.base_url for one in configurations if _wants_client(one.config)}
    metadata = {"recipe_name": "mint.recipe.sweep"}
    clients = {}
    for url in sorted(urls, key=str):
        service = await Service.connect(base_url=url, user_metadata=metadata, client=given)
        clients[url] = (await held.enter_async_context(service)).client
    return clients


def _wants_client(config: Any) -> bool:
    return getattr(config, "service_client", config) is None and hasattr(config, "base_url")


def _with_client(config: Any, clients: Mapping[str | None, Any]) -> Any:
    if not _wants_client(config):
        return config
    return chz.replace(config, service_client=clients[config.base_url])


def _in_a_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}"


def _rl_main() -> Train:
    from mint.recipe.rl.train import main  # with all of the loop; another `train` needs none of it

    return main
