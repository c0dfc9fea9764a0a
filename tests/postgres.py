"""A PostgreSQL server of this test run's own: its data in a temporary folder, its socket too."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from itertools import count
from pathlib import Path

from sqlalchemy import create_engine

_NAMES = count()
_AS_USER = "postgres"
"""PostgreSQL refuses to run as root; Debian's package makes this user."""


def binaries() -> Path | None:
    """The folder of the newest PostgreSQL here, None without one."""
    places = sorted(glob("/usr/lib/postgresql/*/bin"), key=_version)
    if found := shutil.which("initdb"):
        places.append(str(Path(found).parent))
    return next((Path(p) for p in reversed(places) if (Path(p) / "initdb").exists()), None)


def missing() -> str:
    """Why no PostgreSQL can be started here; empty if one can."""
    if binaries() is None:
        return "no PostgreSQL on this machine (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and _AS_USER not in {user.pw_name for user in pwd.getpwall()}:
        return f"PostgreSQL does not run as root, and there is no user {_AS_USER!r}"
    return ""


class Postgres:
    """A running server, reached over its socket only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._admin = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://mint@/{database}?host={self._folder}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{next(_NAMES)}"
        with self._admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def close(self) -> None:
        self._admin.dispose()


@contextmanager
def serve() -> Iterator[Postgres]:
    """Run PostgreSQL until the block ends. It forgets everything, so it need not write safely."""
    bin_ = binaries()
    assert bin_ is not None
    folder = Path(tempfile.mkdtemp(prefix="mint-pg-"))
    data = folder / "data"
    as_user: dict[str, object] = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam(_AS_USER)
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def run(program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(bin_ / program), "-D", str(data), *arguments],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
            **as_user,  # type: ignore[arg-type]
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    options = {
        "listen_addresses": "''", "unix_socket_directories": str(folder), "max_connections": "200",
        "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off",
    }  # fmt: skip
    told = " ".join(f"-c {name}={value}" for name, value in options.items())
    try:
        run("initdb", "-U", "mint", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8")
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", told, "start")
        postgres = Postgres(folder)
        try:
            yield postgres
        finally:
            postgres.close()
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _version(folder: str) -> tuple[int, ...]:
    return tuple(int(part) for part in Path(folder).parent.name.split(".") if part.isdigit())
