"""How commands speak: answers on stdout, one line on stderr when something is wrong."""

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence

import click

from mint.core.errors import MintError


@contextlib.contextmanager
def plain_failures() -> Iterator[None]:
    """Turn what a user can act on into one line and exit code 1.

    Errors of ours and of upstream's client; anything else is our bug and keeps its traceback.
    """
    try:
        yield
    except MintError as error:
        raise click.ClickException(one_line(str(error))) from error
    except Exception as error:
        import tinker  # only now: it takes seconds where torch is installed

        if not isinstance(error, tinker.TinkerError):
            raise
        raise click.ClickException(one_line(_said_by_server(error))) from error


def _said_by_server(error: Exception) -> str:
    """The server's own words in an error of upstream's, without upstream's wrapping."""
    body = getattr(error, "body", None)
    if isinstance(body, dict) and isinstance(body.get("detail"), str):
        return body["detail"]
    return str(error).removeprefix("Request failed: ").partition(" for self.request_id=")[0]


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under their heads, in columns as wide as they need to be."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    )


def size(size_bytes: int) -> str:
    """A size as people read it."""
    scaled = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if scaled < 1024:
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    return f"{scaled:.1f} GiB"


@contextlib.contextmanager
def percent(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how far something is; elsewhere say nothing."""
    is_terminal = sys.stderr.isatty()
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        now = 100 * done // max(total, 1)
        if is_terminal and now != shown:
            shown = now
            click.echo(f"\r{what} {now} % of {size(total)}", nl=False, err=True)

    yield show
    if shown >= 0:
        click.echo("", err=True)


def hush_libraries() -> None:
    """Keep libraries' advice to programmers off a user's terminal."""
    warnings.simplefilter("ignore")
    for name in ("tinker", "transformers", "httpx"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
