"""mint checkpoints: list, look at, fetch, send and remove what models have saved."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mint.cli.output import percent, plain_failures, size, table

if TYPE_CHECKING:
    from mint.client.checkpoints import CheckpointStore

_REFERENCE = "CHECKPOINT"
_SENT = (
    "adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors", "manifest.json",
)  # fmt: skip


@click.group()
def checkpoints() -> None:
    """List, download, push and delete checkpoints of a server.

    CHECKPOINT is a path (tinker://… or mint://…) or an ID of `mint checkpoints list`. The server is
    found as the SDK finds it: MINT_BASE_URL and MINT_API_KEY, then TINKER_*, then the local
    embedded server.
    """


@checkpoints.command("list")
@click.option("--json", "as_json", is_flag=True, help="One object a line, for scripts.")
def list_(as_json: bool) -> None:
    """List your checkpoints, newest first."""
    with store() as server:
        found = server.list()
    if as_json:
        for checkpoint in found:
            click.echo(json.dumps(checkpoint))
        return
    if not found:
        click.echo("no checkpoints yet.", err=True)
        return
    head = ("ID", "CREATED", "SIZE", "RANK", "BASE MODEL", "PATH")
    rows = [
        (
            one["id"],
            one["created_at"][:16].replace("T", " "),
            size(one["size_bytes"]),
            str(one["lora"]["rank"]),
            one["base_model"],
            one["path"],
        )
        for one in found
    ]
    click.echo(table(head, rows))


@checkpoints.command()
@click.argument("checkpoint", metavar=_REFERENCE)
def info(checkpoint: str) -> None:
    """Print what is known of a checkpoint, as JSON."""
    with store() as server:
        click.echo(json.dumps(server.info(checkpoint), indent=2))


@checkpoints.command()
@click.argument("checkpoint", metavar=_REFERENCE)
@click.argument("folder", type=click.Path(path_type=Path))
def download(checkpoint: str, folder: Path) -> None:
    """Fetch all files of a checkpoint into FOLDER, which is made."""
    with store() as server, percent("downloading") as progress:
        server.download(checkpoint, folder, progress=progress)
    click.echo(folder)


@checkpoints.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="Name of the checkpoint there.  [default: the folder's]")
@click.option("--base-model", help="As the server calls it.  [default: as the files say]")
def push(folder: Path, name: str | None, base_model: str | None) -> None:
    """Send a downloaded checkpoint in FOLDER to a server and print its path there.

    Optimizer state goes along where there is some, so training can go on from it. `mint import`
    takes adapters of other origin, and compares what they compute.
    """
    from mint.core.errors import ConfigError

    with plain_failures():
        files = [name for name in _SENT if (folder / name).is_file()]
        if "manifest.json" not in files:
            raise ConfigError(
                f"{folder} has no manifest.json, so no server of ours wrote it. Use `mint import`."
            )
        base_model = base_model or _base_model(folder / "manifest.json")
    with store() as server, percent("sending") as progress:
        path = server.upload(
            folder, files, name=name or folder.resolve().name, base_model=base_model,
            progress=progress,
        )  # fmt: skip
    click.echo(path)


@checkpoints.command()
@click.argument("checkpoint", metavar=_REFERENCE)
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(checkpoint: str, yes: bool) -> None:
    """Remove a checkpoint and its files for good."""
    with store() as server:
        found = server.info(checkpoint)
        if not yes:
            click.confirm(f"delete {found['path']} ({size(found['size_bytes'])})?", abort=True)
        server.delete(found["path"])
    click.echo(f"deleted {found['path']}.")


def _base_model(manifest: Path) -> str:
    from mint.core.errors import ConfigError

    try:
        return str(json.loads(manifest.read_text())["base_model"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{manifest} names no base model ({error!r}).") from error


@contextlib.contextmanager
def store() -> "Iterator[CheckpointStore]":
    """The checkpoints of the configured server; failures become one line and exit code 1."""
    with plain_failures():
        from mint.client import settings
        from mint.client.checkpoints import CheckpointStore
        from mint.client.connect import check, connect

        found = connect(settings.read())
        check(found)
        with CheckpointStore(found) as server:
            yield server
