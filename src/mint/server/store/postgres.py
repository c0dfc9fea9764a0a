"""What PostgreSQL needs said that SQLite has by itself: who comes first, and who is alone.

SQLite has one writer at a time. Here writers overlap, so the few places where order or solitude
matters take an advisory lock. Locks belong to a database: two servers on one database meet.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from sqlalchemy import Connection, create_engine, func, select
from sqlalchemy.engine import URL, Engine
from sqlalchemy.exc import OperationalError

from mint.core.errors import ConfigError

_LOOK_AGAIN_S = 0.1


class Lock(IntEnum):
    """Advisory locks of ours; the numbers mean nothing but must not change between versions."""

    MIGRATION = 7_305_001
    """Whoever brings the schema up to date."""
    ARRIVAL = 7_305_002
    """Whoever appends to the queue."""
    ENGINE = 7_305_003
    """Held by the engine process as long as it lives."""


def open_postgres(url: URL) -> Engine:
    """An engine for `url`, whose pool notices connections that the server has closed.

    Raises:
        ConfigError: the driver is not installed.
    """
    try:
        return create_engine(url, pool_size=8, max_overflow=32, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"a PostgreSQL database needs the package {error.name!r}: pip install "
            "'mint-rl[postgres]'."
        ) from None


def alone_in_transaction(tx: Connection, lock: Lock) -> None:
    """Wait for a lock and keep it until the transaction has ended and its rows are visible.

    On SQLite a transaction that writes is alone anyway.
    """
    if tx.dialect.name == "postgresql":
        tx.execute(select(func.pg_advisory_xact_lock(lock)))


@contextmanager
def held(engine: Engine, lock: Lock, timeout_s: float) -> Iterator[bool]:
    """Hold a lock on a connection of its own for the length of the block.

    Yields False if somebody else has held it for `timeout_s`. The lock ends with the process,
    however that ends.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        deadline = time.monotonic() + timeout_s
        while not connection.execute(select(func.pg_try_advisory_lock(lock))).scalar_one():
            if time.monotonic() > deadline:
                yield False
                return
            time.sleep(_LOOK_AGAIN_S)
        try:
            yield True
        finally:
            connection.execute(select(func.pg_advisory_unlock(lock)))


def not_reached(url: URL, error: OperationalError) -> ConfigError:
    """Says which database does not answer, without its password, and in the driver's words."""
    said = " ".join(str(error.orig).split())
    return ConfigError(
        f"the database {url.render_as_string(hide_password=True)} cannot be used: {said}"
    )
