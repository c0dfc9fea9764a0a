import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event
from tests.server.rows import ANNE, a_session, an_operation
from tests.server.waiting import until

from mint.core.errors import ConfigError, Fault
from mint.core.operations import Failure
from mint.server.store.migrate import newest_version
from mint.server.store.records import NewSession
from mint.server.store.schema import metadata


def test_migrations_lead_to_the_schema_of_the_code(store):
    with store.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_processes_that_start_together_migrate_once(database):
    code = "import sys; from mint.server.store.store import Store; Store(sys.argv[1])"

    def start(_: int) -> int:
        return subprocess.run([sys.executable, "-c", code, str(database)], check=False).returncode

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(start, range(3))) == [0, 0, 0]


def test_many_threads_write_at_once(store):
    def write(number: int) -> None:
        store.create_key("anne", "n", f"hash {number}", "hint", False)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(write, range(100)))

    assert len(store.list_keys()) == 100


def test_two_stores_on_one_database_share_the_queue(store, open_store):
    operation_id = store.enqueue(an_operation())

    assert [operation.operation_id for operation in open_store().pending()] == [operation_id]


def test_whoever_asks_for_news_misses_no_operation_that_is_committed_late(store, open_store):
    """The worker asks for arrivals after the last one it has seen, while others arrive."""
    slow, quick = open_store(), open_store()
    written, may_commit = threading.Event(), threading.Event()

    def hold(_connection) -> None:
        written.set()
        assert may_commit.wait(30)

    event.listen(slow._engine, "commit", hold)
    seen: list[str] = []
    newest = 0

    def look() -> None:
        nonlocal newest
        for operation in store.pending(after=newest):
            seen.append(operation.operation_id)
            newest = operation.arrival

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(slow.enqueue, an_operation())
        assert written.wait(30)
        second = threads.submit(quick.enqueue, an_operation())
        for _ in range(20):  # time for the second to be visible, were it possible
            look()
            threading.Event().wait(0.01)
        may_commit.set()
        until(lambda: (look(), len(seen) == 2)[1])

    assert seen == [first.result(), second.result()]


def test_a_cancelled_operation_is_not_also_taken(store, open_store):
    """Both look at the row before they change it; only one of them finds it waiting."""
    other = open_store()
    for _ in range(20):
        operation_id = store.enqueue(an_operation())
        with ThreadPoolExecutor(2) as threads:
            cancelled = threads.submit(other.cancel, ANNE, operation_id)
            taken = threads.submit(store.take, [operation_id])
        assert cancelled.result().ended != bool(taken.result())


def test_one_engine_process_at_a_time_works_on_a_database(store, open_store, database):
    other = open_store()
    with store.only_engine(timeout_s=0) as first, other.only_engine(timeout_s=0) as second:
        assert first
        # An SQLite file lies in a data folder, and the folder's lock has decided before.
        assert second == ("://" not in str(database))
    with other.only_engine(timeout_s=0) as again:
        assert again


def test_no_text_is_too_odd_to_be_kept(store):
    odd = "nul \0, emoji \N{GRINNING FACE}, \x1b[1m, 新"
    kept = odd.replace("\0", "\ufffd")
    session = store.create_session(
        NewSession(owner=ANNE, idempotency_key=odd, user_metadata={"k": odd}, display_name=odd)
    )
    operation_id = store.enqueue(an_operation())
    store.finish(operation_id, None, Failure(odd, Fault.USER))

    assert a_session(store, key=odd).session_id == session.session_id
    assert store.session(ANNE, session.session_id).display_name == kept
    assert store.session(ANNE, session.session_id).user_metadata == {"k": odd}
    assert store.operation(ANNE, operation_id).error == kept


def test_a_database_of_a_newer_version_is_refused_and_left_alone(store, open_store):
    with store.writing() as tx:
        tx.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(ConfigError, match="made by a newer version"):
        open_store()
    with store.reading() as tx:
        assert tx.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == "9999"


def test_a_new_database_has_the_version_that_needs_no_migration(store):
    with store.reading() as tx:
        version = tx.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one()

    assert version == newest_version()


def test_a_current_database_is_opened_without_alembic(database, store):
    code = (
        "import sys; from mint.server.store.store import Store; Store(sys.argv[1]); "
        "sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(database)], check=False).returncode == 0
