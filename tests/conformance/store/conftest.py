"""One suite, every database: each test here runs on SQLite and on PostgreSQL."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mint.server.store.store import Store


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """Where an empty database is: a path or a URL."""
    if request.param == "sqlite":
        return tmp_path / "mint.db"
    return request.getfixturevalue("postgres").new_database()


@pytest.fixture
def open_store(database: str | Path, clock: Clock) -> Iterator[Callable[[], Store]]:
    """Opens the test's database once more, as another process would."""
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(Store(database, clock=clock))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()
