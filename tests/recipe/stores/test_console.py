"""What a person sees: a bar on a terminal, lines elsewhere, all on stderr."""

import io
import sys

import pytest

from mint.recipe.stores.console import Pace, Progress, clock, progress_line

ROW = {"env/all/reward/total": 0.25, "tokens/sampled": 3200}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_step_in_words():
    pace = Pace(done=3, total=20, done_here=3, elapsed_s=12.0)
    assert progress_line(pace, ROW, 4.0) == (
        "step 3/20, reward 0.250, 800 tokens/s, 4.0 s, about 1:08 left"
    )


def test_what_a_row_lacks_is_left_out_and_the_last_step_has_nothing_left():
    assert progress_line(Pace(2, 2, 1, 1.0), {}, 1.0) == "step 2/2, 1.0 s"


def test_the_time_left_counts_the_steps_of_this_process_only():
    resumed = Pace(done=11, total=21, done_here=1, elapsed_s=2.0)
    assert resumed.left_s == 20.0
    assert Pace(10, 20, 0, 0.0).left_s is None


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (65, "1:05"), (7200, "2:00:00")])
def test_a_clock(seconds: float, shown: str):
    assert clock(seconds) == shown


def test_where_stderr_is_no_terminal_there_is_a_line_a_step(capfd: pytest.CaptureFixture[str]):
    progress = Progress(2, "math")
    progress.step(0, ROW, None)
    progress.step(1, {}, "All episodes hit max_tokens=64: raise max_tokens.")
    progress.close()

    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0].startswith("math: step 1/2, reward 0.250, ")
    assert lines[1].startswith("math: step 2/2, ")
    assert lines[2] == "math: All episodes hit max_tokens=64: raise max_tokens."


def test_on_a_terminal_one_run_has_the_bar_and_one_beside_it_has_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    first, second = Progress(2, "first"), Progress(2, "second")
    first.step(0, ROW, "Look.")
    second.step(0, ROW, None)
    print("the script's")
    first.close()
    first.close()  # does no harm

    third = Progress(1, "third")  # the bar is free again
    third.close()
    shown = terminal.getvalue()
    assert "second: step 1/2, reward 0.250" in shown
    assert "first: Look." in shown
    assert "step 1/2, reward 0.250" in shown.replace("second: step 1/2, reward 0.250", "")
    assert "third" in shown
    assert capsys.readouterr().out == "the script's\n"
