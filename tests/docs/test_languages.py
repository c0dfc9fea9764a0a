"""English and Chinese pages say the same."""

from pathlib import Path

import pytest
from docs.chinese import CHINESE
from tests.docs.pages import ROOT, code, counterpart, is_chinese, links, pages

from docs import tables

AWAITED: set[Path] = set()
"""Chinese pages that are still to be written. One that is there leaves this list."""

PAIRED = [page for page in pages() if (other := counterpart(page)) and (ROOT / other).exists()]
CHINESE_PAGES = [page for page in pages() if is_chinese(page)]


def test_every_page_for_users_is_there_in_both_languages():
    wanted = {other for page in pages() if (other := counterpart(page))}

    assert {page for page in wanted if not (ROOT / page).exists()} <= AWAITED


def test_no_page_that_is_there_is_awaited():
    assert [page for page in AWAITED if (ROOT / page).exists()] == []


@pytest.mark.parametrize("page", CHINESE_PAGES, ids=str)
def test_code_is_the_same_in_both_languages(page: Path):
    english = counterpart(page)
    assert english is not None

    assert code(page) == code(english), "blocks of code are copied, not translated"


@pytest.mark.parametrize("page", PAIRED, ids=str)
def test_a_page_links_to_its_other_language(page: Path):
    reached = {(ROOT / page.parent / link).resolve() for link in links(page)}

    assert (ROOT / str(counterpart(page))).resolve() in reached


def test_every_translated_sentence_is_still_in_the_code():
    asked: set[str] = set()

    def note(sentence: str) -> str:
        asked.add(sentence)
        return sentence

    for table in tables.TABLES.values():
        table(note)

    assert set(CHINESE) - asked == set(), "remove these from docs/chinese.py"
