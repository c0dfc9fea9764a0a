"""Files of JSON lines that survive being killed in the middle of one."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mint.recipe.exceptions import DataFormatError
from mint.recipe.stores.json_lines import append_line, append_lines, read_lines


def test_what_is_appended_is_read_back(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    append_line(path, {"step": 0, "text": "線\u2028two\nlines"})
    append_lines(path, [{"step": 1}, {"step": 2}])

    rows = read_lines(path)
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[0]["text"] == "線\u2028two\nlines"


def test_no_file_has_no_rows(tmp_path: Path):
    assert read_lines(tmp_path / "none.jsonl") == []


def test_a_half_written_last_line_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 0}\n{"step": 1, "rew')

    assert read_lines(path) == [{"step": 0}]
    assert "only half there" in caplog.text


def test_a_half_written_last_line_does_not_spoil_the_next_one(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 0}\n{"step": 1, "rew')
    append_line(path, {"step": 1})

    assert path.read_text() == '{"step": 0}\n{"step": 1}\n'


def test_a_whole_last_line_without_its_end_is_kept(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 0}')
    append_line(path, {"step": 1})

    assert read_lines(path) == [{"step": 0}, {"step": 1}]


@pytest.mark.parametrize("bad", ["{broken", "[1, 2]"])
def test_a_bad_line_before_the_last_is_an_error_with_its_number(tmp_path: Path, bad: str):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"step": 0}}\n{bad}\n{{"step": 2}}\n')
    with pytest.raises(DataFormatError, match="line 2"):
        read_lines(path)


def test_numbers_are_strict_json(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    append_line(path, {
        "a": np.float32(0.5), "b": np.int64(3), "nan": float("nan"), "inf": [np.float64("inf")],
        "array": np.array([1.0, np.nan]),
    })  # fmt: skip

    assert json.loads(path.read_text(), parse_constant=pytest.fail) == {
        "a": 0.5, "b": 3, "nan": None, "inf": [None], "array": [1.0, None],
    }  # fmt: skip


def test_what_json_does_not_know_is_written_as_text(tmp_path: Path):
    append_line(tmp_path / "rows.jsonl", {"where": Path("a/b")})
    assert read_lines(tmp_path / "rows.jsonl") == [{"where": "a/b"}]


@given(cut=st.integers(0, 60), rows=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_wherever_a_kill_cuts_the_file_whole_lines_stay_and_it_can_go_on(cut: int, rows: list[int]):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        append_lines(path, [{"step": row} for row in rows])
        left = path.read_bytes()[:cut]
        path.write_bytes(left)
        whole = [{"step": row} for row in rows][: left.count(b"\n")]
        last = {"step": rows[len(whole)]} if left.endswith(b"}") else None
        expected = whole + [last] * (last is not None)

        append_line(path, {"step": 99})
        assert read_lines(path) == [*expected, {"step": 99}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk always full")
def test_a_disk_that_is_full_is_named_by_the_file():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        append_line(Path("/dev/full"), {"a": 1})
