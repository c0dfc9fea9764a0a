import pytest

from mint.core.errors import ConfigError
from mint.server.store.store import Store


def test_only_its_owner_reads_the_database(tmp_path):
    store = Store(tmp_path / "mint.db")
    store.list_keys()

    files = [path for path in tmp_path.glob("mint.db*") if "lock" not in path.name]
    assert len(files) == 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
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
