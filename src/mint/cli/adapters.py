"""mint import and mint export: adapters and models from and to elsewhere, compared on the way."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mint.cli.output import hush_libraries, percent, plain_failures

if TYPE_CHECKING:
    from mint.client.checkpoints import CheckpointStore
    from mint.client.connect import Connection

_BASE_HELP = "Folder of the base model here.  [default: looked for by its name]"
_NO_VERIFY_HELP = "Do not compare with the server (no torch or base model is needed then)."


@click.command("import")
@click.argument("path", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="Name of the checkpoint.  [default: the folder's]")
@click.option("--base-model", help="As the server calls it.  [default: as the adapter says]")
@click.option("--base", type=click.Path(file_okay=False, path_type=Path), help=_BASE_HELP)
@click.option("--no-verify", is_flag=True, help=_NO_VERIFY_HELP)
def import_(
    path: Path, name: str | None, base_model: str | None, base: Path | None, no_verify: bool
) -> None:
    """Make a checkpoint of the PEFT LoRA in PATH, and print its path.

    The adapter is sent to the server and then computed on both sides, there and here by peft; if
    the logprobs of fixed prompts differ by more than rounding, it is removed again.
    """
    hush_libraries()
    with plain_failures():
        from mint.core.errors import ConfigError, UserError
        from mint.core.peft import ADAPTER_FILE, CONFIG_FILE, read_adapter_config

        try:
            config = read_adapter_config(json.loads((path / CONFIG_FILE).read_text()))
        except (OSError, ValueError) as error:
            raise UserError(f"{path} is no PEFT adapter: {error}.") from error
        if not (path / ADAPTER_FILE).is_file():
            raise UserError(f"{path} has no {ADAPTER_FILE}; other formats of weights are not read.")
        base_model = base_model or config.base_model
        if base_model is None:
            raise ConfigError(
                f"{CONFIG_FILE} names no base model: say --base-model NAME, as the server calls it."
            )
        connection = _connect()
        here = None if no_verify else _base_folder(connection, base_model, base, needs_peft=True)
        with _store(connection) as server:
            with percent("sending") as progress:
                uploaded = server.upload(
                    path, [ADAPTER_FILE, CONFIG_FILE], name=name or path.resolve().name,
                    base_model=base_model, progress=progress,
                )  # fmt: skip
            if here is not None:
                _verify_import(connection, server, uploaded, base_model, here, path)
    click.echo(uploaded)


@click.command()
@click.argument("checkpoint")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--merged", is_flag=True, help="A full model instead of a PEFT adapter.")
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Of the merged weights.  [default: as the base model's files]",
)  # fmt: skip
@click.option("--base", type=click.Path(file_okay=False, path_type=Path), help=_BASE_HELP)
@click.option("--no-verify", is_flag=True, help=_NO_VERIFY_HELP)
def export(
    checkpoint: str, out: Path, merged: bool, dtype: str | None, base: Path | None, no_verify: bool
) -> None:
    """Write CHECKPOINT into the new folder OUT, as a PEFT adapter or merged into a full model.

    What was written is computed here by transformers and peft and compared with the server; if
    the logprobs of fixed prompts differ by more than rounding, the folder is removed again.
    """
    hush_libraries()
    with plain_failures():
        from mint.client.checkpoints import new_folder
        from mint.core.errors import ConfigError
        from mint.core.peft import ADAPTER_FILE, CONFIG_FILE

        if dtype and not merged:
            raise ConfigError("--dtype is for --merged; an adapter is written as it was trained.")
        connection = _connect()
        with _store(connection) as server, new_folder(out) as staging:
            info = server.info(checkpoint)
            name = info["base_model"]
            here = None
            if merged or not no_verify:
                here = _base_folder(connection, name, base, needs_peft=not merged)
            adapter = staging / "adapter"
            with percent("downloading") as progress:
                server.download(
                    info["path"], adapter, only=(ADAPTER_FILE, CONFIG_FILE), progress=progress
                )
            if merged:
                assert here is not None
                _merge(here, adapter, staging, dtype)
            else:
                _move_up(adapter)
            verification = None
            if not no_verify:
                assert here is not None
                verification = _verify_export(
                    connection, server, info, here, staging, merged=merged
                )
                click.echo(verification, err=True)
            _note(staging, info, verification, merged=merged)
    click.echo(out)


def _connect() -> "Connection":
    from mint.client import settings
    from mint.client.connect import check, connect

    found = connect(settings.read())
    check(found)
    return found


def _store(connection: "Connection") -> "CheckpointStore":
    from mint.client.checkpoints import CheckpointStore

    return CheckpointStore(connection)


def _base_folder(
    connection: "Connection", name: str, given: Path | None, *, needs_peft: bool
) -> Path:
    """The base model's files, found before anything long begins."""
    from mint.client import settings
    from mint.core.errors import ConfigError

    try:
        from mint.weights.base import find_base
        from mint.weights.logprobs import check_peft
    except ImportError as error:
        raise ConfigError(
            f"this needs torch, transformers and safetensors here ({error}): pip install "
            "'mint-rl[server]', or --no-verify where nothing is to be merged."
        ) from error
    if needs_peft:
        check_peft()
    if given is None and connection.is_embedded:
        known = (spec.partition("=") for spec in settings.read().embedded.models)
        given = next((Path(folder) for model, _, folder in known if model == name and folder), None)
    return find_base(name, given)


def _verify_import(
    connection: "Connection", server: "CheckpointStore", path: str, base_model: str, base: Path,
    adapter: Path,
) -> None:  # fmt: skip
    """Compare, and take the checkpoint back if that fails for whatever reason."""
    from mint.cli.verification import ask_server
    from mint.core.parity import largest_gap
    from mint.weights.logprobs import logprobs

    try:
        side = ask_server(connection, path, base_model)
        local = logprobs(base, side.prompts, adapter)
        tolerance = largest_gap(_dtype_of(server, base_model))
        verification = side.compare(local, tolerance, "peft")
        verification.check()
    except BaseException:
        server.delete(path)
        raise
    click.echo(verification, err=True)


def _merge(base: Path, adapter: Path, out: Path, dtype: str | None) -> None:
    from mint.weights.merge import DTYPES, merge

    merge(base, adapter, out, DTYPES[dtype] if dtype else None)
    shutil.rmtree(adapter)


def _move_up(folder: Path) -> None:
    for path in folder.iterdir():
        path.rename(folder.parent / path.name)
    folder.rmdir()


def _verify_export(
    connection: "Connection", server: "CheckpointStore", info: dict[str, Any], base: Path,
    written: Path, *, merged: bool,
) -> Any:  # fmt: skip
    from mint.cli.verification import ask_server
    from mint.core.parity import largest_gap
    from mint.weights.logprobs import logprobs
    from mint.weights.merge import dtypes_of

    side = ask_server(connection, info["path"], info["base_model"])
    if merged:
        local, against = logprobs(written, side.prompts), "the merged model in transformers"
        dtypes = dtypes_of(written)
    else:
        local, against = logprobs(base, side.prompts, written), "peft"
        dtypes = []
    tolerance = largest_gap(_dtype_of(server, info["base_model"]), *dtypes)
    verification = side.compare(local, tolerance, against)
    verification.check()
    if merged:
        verification.check_rounding(dtypes)
    return verification


def _note(folder: Path, info: dict[str, Any], verification: Any, *, merged: bool) -> None:
    from importlib.metadata import version

    from mint.cli.verification import write_note

    write_note(
        folder,
        verification,
        kind="merged model" if merged else "PEFT adapter",
        checkpoint=info["path"],
        base_model=info["base_model"],
        lora=info["lora"],
        written_by=f"mint {version('mint-rl')}",
        files=_stamps(folder),
    )


def _stamps(folder: Path) -> dict[str, Any]:
    from mint.client.checkpoints import described

    return {
        path.name: {"size_bytes": file.size_bytes, "sha256": file.sha256}
        for path in sorted(folder.iterdir())
        if (file := described(path))
    }


def _dtype_of(server: "CheckpointStore", base_model: str) -> str:
    """The dtype a server computes this base model in."""
    models = server.server()["models"]
    return next((model["dtype"] for model in models if model["name"] == base_model), "unknown")
