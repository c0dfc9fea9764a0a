"""Progress is a line per quarter in a log and one bar on a terminal."""

import io

from mint.torch_engine.models.progress import with_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_one_line_per_quarter():
    log = io.StringIO()

    assert list(with_progress(range(100), "Converting", stream=log)) == list(range(100))

    assert log.getvalue().splitlines() == [
        "Converting: 25%", "Converting: 50%", "Converting: 75%", "Converting: 100%",
    ]  # fmt: skip


def test_a_terminal_gets_one_bar_that_is_redrawn():
    terminal = Terminal()

    list(with_progress(range(10), "Converting", stream=terminal, width=10))

    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().split("\r")[-1] == "Converting [##########] 100%\n"


def test_whoever_asks_is_told_the_share_at_every_item():
    told: list[float] = []

    list(with_progress(range(4), "Converting", stream=io.StringIO(), on_share=told.append))

    assert told == [0.25, 0.5, 0.75, 1.0]
