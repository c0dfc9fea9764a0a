"""The page on SDK versions tells what `make test-sdks` runs."""

from tests.sdks import table
from tests.sdks.environments import versions

from mint.wire.versions import NEWEST, OLDEST, sdk_release


def test_the_table_has_a_column_for_each_version_and_a_row_for_each_script():
    columns, rows = table.in_docs()

    assert columns == versions()
    assert sorted(rows) == sorted(script.title for script in table.scripts()), (
        "run: make test-sdks SDKS_ARGS=--write-docs"
    )


def test_the_table_is_of_a_run_in_which_nothing_failed():
    _, rows = table.in_docs()
    passed, skipped = table.Outcome.PASSED.value, table.Outcome.SKIPPED.value

    for title, cells in rows.items():
        assert set(cells) <= {passed, skipped}, title
        assert passed in cells, f"no version can: {title}"


def test_the_window_that_the_server_names_is_the_one_that_is_tried():
    first, *_, last = versions()

    assert (sdk_release(first), sdk_release(last)) == (OLDEST, NEWEST)


def test_the_page_names_every_version_that_is_tried():
    text = table.PAGE.read_text()

    assert [version for version in versions() if version not in text] == []
