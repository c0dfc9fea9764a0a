"""mint keys: who may use a server of this machine. Works on its database, running or not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from mint.cli.output import one_line, size, table
from mint.cli.serve import place_options
from mint.core.errors import MintError

if TYPE_CHECKING:
    from mint.server.store.store import Store


@click.group()
def keys() -> None:
    """Make, list and revoke API keys of a server on this machine."""


@keys.command()
@click.argument("name")
@click.option("--owner", help="Whose objects it opens; keys of one owner share.  [default: NAME]")
@click.option("--admin", is_flag=True, help="May also look after the server.")
@place_options
def create(name: str, owner: str | None, admin: bool, **place: Any) -> None:
    """Make a key called NAME and print its secret, this once."""
    from mint.core.ids import Owner
    from mint.server.auth.keys import hash_secret, hint, new_secret

    if not name.strip():
        raise click.UsageError("NAME is empty; give one that tells keys apart.")
    secret = new_secret()
    with _store(place, may_make=True) as (store, where):
        key = store.create_key(
            Owner(owner or name), name, hash_secret(secret), hint(secret), is_admin=admin
        )
    click.echo(secret)
    click.echo(
        f"key {key.key_id} for owner {key.owner!r}, for servers on {where}. The secret above is not kept and cannot be "
        "shown again; clients: export MINT_API_KEY=<secret>",
        err=True,
    )


@keys.command("list")
@place_options
def list_(**place: Any) -> None:
    """List all keys, revoked ones too."""
    with _store(place) as (store, where):
        found = store.list_keys()
    if not found:
        click.echo(f"no keys yet in {where}: mint keys create NAME", err=True)
        return
    head = ("ID", "NAME", "OWNER", "ENDS IN", "ROLE", "CREATED", "REVOKED")
    rows = [
        (
            key.key_id,
            key.name,
            key.owner,
            key.hint,
            "admin" if key.is_admin else "user",
            f"{key.created_at:%Y-%m-%d %H:%M}",
            f"{key.revoked_at:%Y-%m-%d %H:%M}" if key.revoked_at else "",
        )
        for key in found
    ]
    click.echo(table(head, rows))


@keys.command()
@place_options
def usage(**place: Any) -> None:
    """Tell what was computed for each key, and what each owner stores."""
    with _store(place) as (store, where):
        found, used, storage = store.list_keys(), store.usage_by_key(), store.storage()
    if not found:
        click.echo(f"no keys yet in {where}: mint keys create NAME", err=True)
        return
    by_key = {(row.owner, row.key_id): row for row in used}
    head = ("OWNER", "ID", "NAME", "LAST USED", "OPERATIONS", "FAILED", "TRAINED", "PROMPTS",
            "SAMPLED")  # fmt: skip
    rows = []
    for key in sorted(found, key=lambda key: key.owner):
        row = by_key.get((key.owner, key.key_id))
        amounts = (
            (row.operations, row.failed, row.trained_tokens, row.prompt_tokens, row.sampled_tokens)
            if row
            else (0,) * 5
        )
        last = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never"
        rows.append((key.owner, key.key_id, key.name, last, *map(str, amounts)))
    click.echo(table(head, rows))
    stored: dict[str, tuple[int, int]] = {}
    for part in storage:
        count, total = stored.get(part.owner, (0, 0))
        stored[part.owner] = (count + part.checkpoints, total + part.size_bytes)
    for owner, (count, total) in stored.items():
        click.echo(f"{owner} stores {count} checkpoints, {size(total)}.")
    click.echo("TRAINED, PROMPTS and SAMPLED count tokens.", err=True)


@keys.command()
@click.argument("key_id", metavar="ID")
@place_options
def revoke(key_id: str, **place: Any) -> None:
    """Make the key ID useless, from the next request on."""
    from mint.core.ids import KeyId

    with _store(place) as (store, _):
        store.revoke_key(KeyId(key_id))
    click.echo(f"revoked {key_id}.")


@contextmanager
def _store(place: dict[str, Any], *, may_make: bool = False) -> "Iterator[tuple[Store, str]]":
    """The store of a server's settings, and its place in words; made only by `create`."""
    from mint.server.settings_sources import read_place

    try:
        settings = read_place(place, os.environ)
        if not may_make and not settings.is_shared and not settings.data.is_dir():
            raise click.ClickException(
                f"there is no server's data folder at {settings.data}. Name it with --data."
            )
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        from mint.server.store.store import Store

        store = Store(settings.store_at)
        try:
            yield store, settings.shown_database
        finally:
            store.close()
    except MintError as error:
        raise click.ClickException(one_line(str(error))) from error
