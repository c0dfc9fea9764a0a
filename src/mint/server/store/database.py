"""Opening the database: pragmas, transactions, file rights, migrations."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import OperationalError

from mint.core.errors import StorageError
from mint.server.store.migrate import migrate
from mint.server.store.postgres import Lock, held, not_reached, open_postgres

BUSY_TIMEOUT_S = 30
"""How long a writer waits for another one. Our transactions take milliseconds; the longest is
storing a large payload."""


def utcnow() -> datetime:
    return datetime.now(UTC)


def random_id() -> str:
    """128 random bits in hex: not to be guessed, and without ":" or "/"."""
    return secrets.token_hex(16)


class Database:
    """One database, and the two kinds of transaction on it. Thread-safe.

    Args:
        url_or_path: an SQLAlchemy URL, or the path of an SQLite file, which is made if missing.
        clock: gives the present time, zone-aware UTC.
        new_id: gives a fresh identifier.

    Raises:
        ConfigError: a PostgreSQL server does not answer, refuses us, or its driver is missing.
    """

    def __init__(
        self,
        url_or_path: str | Path,
        *,
        clock: Callable[[], datetime] = utcnow,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self._clock = clock
        self._new_id = new_id
        self._engine = open_engine(_url(url_or_path))
        # An engine of the same pool whose transactions begin as writers.
        self._writing_engine = self._engine.execution_options(writes=True)
        try:
            migrate(self._engine)
        except OperationalError as error:
            if self._engine.dialect.name == "sqlite":
                raise
            raise not_reached(self._engine.url, error) from None

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that writes nothing. Raises: StorageError: the database refuses."""
        return _transaction(self._engine)

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that writes. Raises: StorageError: the database refuses; nothing changed."""
        return _transaction(self._writing_engine)

    def only_engine(self, timeout_s: float) -> AbstractContextManager[bool]:
        """Be the one engine process of this database for the length of a block.

        Yields False if another one has stayed for `timeout_s`. An SQLite file lies in a data
        folder, whose lock says the same.
        """
        if self._engine.dialect.name == "sqlite":
            return nullcontext(True)
        return held(self._engine, Lock.ENGINE, timeout_s)

    def close(self) -> None:
        self._engine.dispose()


@contextmanager
def _transaction(engine: Engine) -> Iterator[Connection]:
    try:
        with engine.begin() as connection:
            yield connection
    except OperationalError as error:
        said = " ".join(
            str(error.orig).split()
        )  # never the statement, whose values may be anything
        raise StorageError(
            f"the server's database cannot be used: {said}. Nothing was changed; the server's "
            "operator has to see to it, and the same request may succeed then."
        ) from error


def open_engine(url: URL) -> Engine:
    """An engine for `url`; SQLite gets WAL, foreign keys and its file for the owner only."""
    if url.get_backend_name() != "sqlite":
        return open_postgres(url)
    if url.database:
        _only_for_owner(Path(url.database))
    engine = create_engine(
        url, pool_size=8, max_overflow=32, connect_args={"timeout": BUSY_TIMEOUT_S}
    )
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _url(url_or_path: str | Path) -> URL:
    if isinstance(url_or_path, str) and "://" in url_or_path:
        return make_url(url_or_path)
    return URL.create("sqlite", database=str(Path(url_or_path).absolute()))


def _only_for_owner(path: Path) -> None:
    """Make the file with rights 0600 before SQLite does; -wal and -shm copy its rights."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    path.chmod(0o600)


def _on_connect(connection, _record) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself; _on_begin does
    for pragma in (
        "journal_mode = WAL",  # readers do not wait for the writer
        "synchronous = NORMAL",  # survives a process; a power cut may lose the last moments
        f"busy_timeout = {BUSY_TIMEOUT_S * 1000}",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _on_begin(connection: Connection) -> None:
    # A reader that turns into a writer fails at once with SQLITE_BUSY when another one wrote in
    # between, whatever the timeout; so writers say so from the start.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
