"""Bring a database to the newest schema."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from filelock import FileLock
from sqlalchemy import text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from mint.core.errors import ConfigError
from mint.server.store.postgres import Lock, alone_in_transaction

_SCRIPTS = Path(__file__).parent / "migrations"
_LOCK_TIMEOUT_S = 120


def migrate(engine: Engine) -> None:
    """Apply the migrations that are missing; safe when two processes start together.

    Raises:
        ConfigError: the database comes from a newer version of this program.
    """
    if not _is_current(engine):
        _upgrade(engine)


def newest_version() -> str:
    """The version of the schema that this program has."""
    return max(path.name for path in (_SCRIPTS / "versions").glob("v*.py"))[1:5]


def _is_current(engine: Engine) -> bool:
    """Whether there is nothing to do. Looked at without alembic, which takes 0.5 s to import."""
    try:
        with engine.connect() as connection:
            return connection.scalar(text("SELECT version_num FROM alembic_version")) == (
                newest_version()
            )
    except DBAPIError:
        return False  # no such table yet; or it cannot be used at all, which the next one says


def _upgrade(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    # The lock comes first: the connection's own transaction would not cover the look at which
    # version the database has. Where there is no file to lock beside, the database has the lock.
    with _lock(engine), engine.begin() as connection:
        alone_in_transaction(connection, Lock.MIGRATION)
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:  # it does not know the version that the database tells
            raise ConfigError(
                f"the database {engine.url.render_as_string(hide_password=True)} was made by a "
                "newer version of this program. Install that one, or restore a backup."
            ) from error


def _lock(engine: Engine) -> AbstractContextManager[object]:
    if engine.dialect.name != "sqlite" or not engine.url.database:
        return nullcontext()
    return FileLock(f"{engine.url.database}.migrate.lock", timeout=_LOCK_TIMEOUT_S)
