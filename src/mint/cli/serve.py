"""mint serve: run a server."""

from pathlib import Path
from typing import Any

import click

from mint.cli.output import one_line
from mint.core.errors import MintError


def data_option(command: Any) -> Any:
    """`--data`, as every command of the server side has it."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="MINT_DATA",
        help="Folder of database and checkpoints.  [default: $MINT_HOME/data, ~/.mint/data]",
    )(command)


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="MINT_HOST",
    help="Address to listen on; others than loopback need a key first (mint keys create).",
)
@click.option(
    "--port",
    default=8000,
    show_default=True,
    envvar="MINT_PORT",
    type=click.IntRange(0, 65535),
    help="0: any free one, told in DATA/server.json.",
)
@data_option
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME[=FOLDER]",
    envvar="MINT_MODELS",
    help="A base model to offer; may be given several times.",
)
@click.option(
    "--on-demand", is_flag=True, help="Offer any base model that can be found by its name."
)
@click.option("--device", default="auto", show_default=True, envvar="MINT_DEVICE")
@click.option("--dtype", default="auto", show_default=True, envvar="MINT_DTYPE")
@click.option("--threads", type=int, help="CPU threads.  [default: all this process may use]")
@click.option("--memory-limit-gib", type=float, help="For weights, adapters and caches.")
@click.option("--max-sequences", type=int, help="Sequences decoded side by side.")
@click.option(
    "--exit-when-idle",
    "exit_when_idle_s",
    type=float,
    metavar="SECONDS",
    help="Leave after so long without requests and work.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    envvar="MINT_LOG_FORMAT",
)  # fmt: skip
def serve(
    data: Path | None,
    models: tuple[str, ...],
    memory_limit_gib: float | None,
    max_sequences: int | None,
    **told: Any,
) -> None:
    """Run a server on this machine: base models, training and sampling over HTTP.

    Without --model a server that only this machine can reach offers any model that can be found
    by name, as with --on-demand.
    """
    from mint.server.process import serve as run
    from mint.server.settings import ServerSettings, default_data, is_loopback

    told["on_demand"] = told["on_demand"] or (not models and is_loopback(told["host"]))
    if max_sequences is not None:
        told["max_sequences"] = max_sequences
    if memory_limit_gib is not None:
        told["memory_limit_bytes"] = int(memory_limit_gib * 2**30)
    try:
        run(ServerSettings(data=(data or default_data()).absolute(), models=models, **told))
    except MintError as error:
        raise click.ClickException(one_line(str(error))) from error
