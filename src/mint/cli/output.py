"""How commands speak: answers on stdout, one line on stderr when something is wrong."""

import contextlib
import logging
import warnings
from collections.abc import Iterator

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


def hush_libraries() -> None:
    """Keep libraries' advice to programmers off a user's terminal."""
    warnings.simplefilter("ignore")
    for name in ("tinker", "transformers", "httpx"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
