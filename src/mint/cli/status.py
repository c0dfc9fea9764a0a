"""mint status: what a server is doing, and for whom."""

import json
from collections.abc import Iterator
from typing import Any

import click

from mint.cli.output import plain_failures, size, table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for scripts.")
def status(as_json: bool) -> None:
    """Show who runs what: engine and memory, sessions, models, queue.

    An admin's key sees all owners, any other key what is its own. The server is the one of
    MINT_BASE_URL and MINT_API_KEY, or the embedded one if it runs; none is started.
    """
    from mint.client import settings
    from mint.client.status import ask, running

    with plain_failures():
        told = ask(running(settings.read()))
    click.echo(json.dumps(told) if as_json else "\n".join(_lines(told)))


def _lines(told: dict[str, Any]) -> Iterator[str]:
    yield from _engine(told["engine"])
    yield from _part(
        "session",
        told["sessions"],
        ("SESSION", "OWNER", "SDK", "OPEN FOR", "SILENT FOR"),
        lambda one: (
            one["session_id"], one["owner"], one["sdk_version"] or "-", _time(one["age_s"]),
            _time(one["silent_s"]),
        ),
    )  # fmt: skip
    yield from _part(
        "model",
        told["models"],
        ("MODEL", "OWNER", "BASE MODEL", "RANK", "STATE", "VERSION", "IDLE FOR"),
        lambda one: (
            one["model_id"], one["owner"], one["base_model"] or "-", str(one["rank"]),
            one["state"], str(one["weights_version"]), _time(one["idle_s"]),
        ),
    )  # fmt: skip
    yield from _part(
        "line in the queue",
        told["queue"],
        ("QUEUE", "OWNER", "MODEL", "STATUS", "COUNT", "OLDEST"),
        lambda one: (
            one["kind"], one["owner"], one["model_id"] or "-", one["status"], str(one["count"]),
            _time(one["oldest_s"]),
        ),
    )  # fmt: skip
    if told["waiting_of_others"]:
        yield f"\n{told['waiting_of_others']} operations of others wait."


def _engine(engine: dict[str, Any]) -> Iterator[str]:
    yield f"engine {engine['state']}: {engine['detail']}"
    if capacity := engine["capacity"]:
        threads = capacity["threads"]
        yield (
            f"  computes on {capacity['device']} in {capacity['dtype']}, "
            f"{threads} CPU {'thread' if threads == 1 else 'threads'}"
        )
        used, limit = capacity["memory_bytes"], capacity["memory_limit_bytes"]
        yield (
            f"  memory {size(used)} of {size(limit)}; base models: "
            f"{', '.join(capacity['loaded_models']) or 'none loaded'}; "
            f"{capacity['adapters']} adapters"
        )
        yield (
            f"  sequences {capacity['running_sequences']} of {capacity['max_sequences']} running, "
            f"{capacity['waiting_sequences']} waiting for room"
        )


def _part(what: str, found: list[dict[str, Any]], head: tuple[str, ...], row: Any) -> Iterator[str]:
    yield ""
    rows = [[_plain(cell) for cell in row(one)] for one in found]
    yield table(head, rows) if rows else f"no {what}"


def _plain(text: str) -> str:
    """Other people's words, which may be meant for the terminal rather than for its reader."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _time(seconds: float) -> str:
    """A length of time as people say it."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
