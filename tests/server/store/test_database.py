import pytest

from mint.core.errors import ConfigError, StorageError
from mint.core.ids import Owner
from mint.server.store.records import NewSession
from mint.server.store.store import Store


def test_only_its_owner_reads_the_database(tmp_path):
    store = Store(tmp_path / "mint.db")
    store.list_keys()

    files = [path for path in tmp_path.glob("mint.db*") if "lock" not in path.name]
    assert len(files) == 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    store.close()


def test_a_full_disk_is_told_without_the_statement_and_passes(tmp_path):
    store = Store(tmp_path / "mint.db")
    with store.writing() as tx:  # as many pages as there are now, and the file is full
        tx.exec_driver_sql("PRAGMA max_page_count = 1")
    wide = NewSession(owner=Owner("anne"), idempotency_key=None, sdk_version="secret" * 100_000)

    with pytest.raises(StorageError, match="database or disk is full") as refused:
        store.create_session(wide)
    assert "secret" not in str(refused.value)

    with store.writing() as tx:
        tx.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert store.create_session(wide).session_id
    store.close()


def test_an_existing_readable_file_is_closed_to_others(tmp_path):
    (tmp_path / "mint.db").touch(mode=0o644)
    Store(tmp_path / "mint.db").close()

    assert (tmp_path / "mint.db").stat().st_mode & 0o777 == 0o600


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path):
    with pytest.raises(ConfigError) as refused:
        Store(f"postgresql+psycopg://mint:hush@/mint?host={tmp_path}")

    assert f"mint:***@/mint?host={tmp_path}" in str(refused.value).replace("%2F", "/")
    assert "hush" not in str(refused.value)
