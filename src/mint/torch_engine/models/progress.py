"""A line on stderr for work that takes seconds."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO, TypeVar

T = TypeVar("T")


def with_progress(
    items: Sequence[T],
    what: str,
    *,
    stream: TextIO | None = None,
    width: int = 30,
    on_share: Callable[[float], None] = lambda _: None,
) -> Iterator[T]:
    """Give the items one by one and show how many are done.

    On a terminal a bar is redrawn in place; in a log file there is one line at every quarter.
    `on_share` is told the share at every item.
    """
    out = stream or sys.stderr
    shown = -1
    for done, item in enumerate(items):
        yield item
        share = (done + 1) / len(items)
        on_share(share)
        if out.isatty():
            step, end = int(share * width), "\n" if share == 1 else ""
            line = f"\r{what} [{'#' * step}{'.' * (width - step)}] {share:4.0%}{end}"
        else:
            step, line = int(share * 4), f"{what}: {share:.0%}\n"
        if step != shown and (share * 4 >= 1 or out.isatty()):
            out.write(line)
            out.flush()
            shown = step
