"""mint keys: who may use a server of this machine. Works on its data folder, running or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mint.cli.output import one_line
from mint.cli.serve import data_option
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
@data_option
def create(name: str, owner: str | None, admin: bool, data: Path | None) -> None:
    """Make a key called NAME and print its secret, this once."""
    from mint.core.ids import Owner
    from mint.server.auth.keys import hash_secret, hint, new_secret

    secret = new_secret()
    with _store(data) as store:
        key = store.create_key(
            Owner(owner or name), name, hash_secret(secret), hint(secret), is_admin=admin
        )
    click.echo(secret)
    click.echo(
        f"key {key.key_id} for owner {key.owner!r}. The secret above is not kept and cannot be "
        "shown again; clients: export MINT_API_KEY=<secret>",
        err=True,
    )


@keys.command("list")
@data_option
def list_(data: Path | None) -> None:
    """List all keys, revoked ones too."""
    with _store(data) as store:
        found = store.list_keys()
    if not found:
        click.echo("no keys yet: mint keys create NAME", err=True)
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
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


@keys.command()
@click.argument("key_id", metavar="ID")
@data_option
def revoke(key_id: str, data: Path | None) -> None:
    """Make the key ID useless, from the next request on."""
    from mint.core.ids import KeyId

    with _store(data) as store:
        store.revoke_key(KeyId(key_id))
    click.echo(f"revoked {key_id}.")


@contextmanager
def _store(data: Path | None) -> "Iterator[Store]":
    """The store of a data folder, made if it is not there yet."""
    from mint.server.settings import default_data
    from mint.server.store.store import Store

    folder = (data or default_data()).absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = Store(folder / "mint.db")
    try:
        yield store
    except MintError as error:
        raise click.ClickException(one_line(str(error))) from error
    finally:
        store.close()
