"""mint serve: run a server. Its flags are the settings, made from their one description."""

import os
from pathlib import Path
from typing import Any

import click

from mint.cli.output import one_line
from mint.core.errors import MintError
from mint.server.settings_sources import Setting, all_settings, read_settings, shown_default

_PLACE = ("data", "database", "config")


def _option(setting: Setting) -> Any:
    """A setting as a flag; None where it was not given, so that other sources are asked."""
    shown = shown_default(setting)
    line = setting.meaning.partition(". ")[0].removesuffix(".").replace("`", "") + "."
    told = f"{line}  [default: {shown}]" if shown and setting.kind is not bool else line
    if setting.kind is bool:
        flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return click.option(flag, setting.name, default=None, help=told)
    if setting.kind is tuple:
        metavar = "NAME[=FOLDER]" if setting.name == "models" else None
        return click.option(
            setting.flag, setting.name, multiple=True, metavar=metavar, help=f"{told} Repeatable."
        )
    kind = click.Path(path_type=Path) if setting.kind is Path else setting.kind
    return click.option(setting.flag, setting.name, type=kind, help=told)


def place_options(command: Any) -> Any:
    """`--data`, `--database` and `--config`, for commands that work beside a server."""
    for setting in reversed(all_settings()):
        if setting.name in _PLACE:
            command = _option(setting)(command)
    return command


def _all_options(command: Any) -> Any:
    for setting in reversed(all_settings()):
        command = _option(setting)(command)
    return command


@click.command()
@_all_options
def serve(**flags: Any) -> None:
    """Run a server on this machine: base models, training and sampling over HTTP.

    A setting is looked for among the flags, then in the environment (--max-sequences is
    MINT_MAX_SEQUENCES), then in the TOML file that --config or MINT_CONFIG names.

    Without --model a server that only this machine can reach offers any model that can be found
    by name, as with --on-demand.
    """
    try:
        settings = read_settings(flags, os.environ)
        from mint.server.channel.spawn import SpareEngine

        spare = SpareEngine(settings)  # first: what it imports takes longer than all the rest
        try:
            from mint.server.process import serve as run

            run(settings, spare)
        finally:
            spare.dismiss()
    except MintError as error:
        raise click.ClickException(one_line(str(error))) from error
