import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from mint.server.store.schema import metadata
from mint.server.store.store import Store


def test_migrations_lead_to_the_schema_of_the_code(store):
    with store.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_only_its_owner_reads_the_database(store, tmp_path):
    store.list_keys()

    files = [path for path in tmp_path.glob("mint.db*") if "lock" not in path.name]
    assert len(files) == 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_an_existing_readable_file_is_closed_to_others(tmp_path):
    (tmp_path / "mint.db").touch(mode=0o644)
    Store(tmp_path / "mint.db").close()

    assert (tmp_path / "mint.db").stat().st_mode & 0o777 == 0o600


def test_processes_that_start_together_migrate_once(tmp_path):
    code = f"from mint.server.store.store import Store; Store({str(tmp_path / 'mint.db')!r})"

    def start(_: int) -> int:
        return subprocess.run([sys.executable, "-c", code], check=False).returncode

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(start, range(3))) == [0, 0, 0]


def test_many_threads_write_at_once(store):
    def write(number: int) -> None:
        store.create_key("anne", "n", f"hash {number}", "hint", False)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(write, range(100)))

    assert len(store.list_keys()) == 100
