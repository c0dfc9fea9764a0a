"""Regular expressions that end."""

import logging
import threading

import pytest

from mint.recipe.grading import compare_math, optional, pattern_matches, search_pattern


def test_a_pattern_is_searched_or_has_to_be_the_whole_text():
    assert search_pattern("it is 42 km", r"(\d+) (?P<unit>\w+)") == "42 km"
    assert search_pattern("it is 42 km", r"(\d+) (?P<unit>\w+)", group="unit") == "km"
    assert search_pattern("none", r"\d") is None
    assert pattern_matches(" 42\n", r"\d+")
    assert not pattern_matches("42 km", r"\d+")
    assert pattern_matches("Yes", "(?i)yes|no")


def test_a_search_without_end_is_cut_and_said(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        assert search_pattern("a" * 5000, "(a+)+b|c", timeout_s=0.1) is None
    assert "'(a+)+b|c' was cut after 0.1 s on a text of 5000 characters" in caplog.text


def test_other_threads_work_during_a_search():
    searching = threading.Event()

    def search() -> None:
        searching.set()
        pattern_matches("a" * 5000, "(a+)+b", timeout_s=0.3)

    thread = threading.Thread(target=search)
    thread.start()
    searching.wait()
    turns = 0
    while thread.is_alive():
        turns += 1
    assert turns > 1000  # one or two, if the search kept the interpreter to itself


def test_what_is_wrong_with_a_pattern_is_said():
    with pytest.raises(ValueError, match=r"'\(' is not a regular expression"):
        search_pattern("", "(")
    with pytest.raises(ValueError, match="has no group 'unit'"):
        search_pattern("a", "a", group="unit")


def test_a_missing_library_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(optional, "import_module", missing)
    with pytest.raises(ImportError, match=r"needs math-verify .*pip install 'mint-rl\[grading\]'"):
        optional.needed("math_verify", "compare_math")


def test_so_is_one_that_a_worker_would_import(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(optional, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"needs math-verify .*pip install 'mint-rl\[grading\]'"):
        compare_math("5", "5")
