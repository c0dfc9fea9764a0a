"""mint: the command. Subcommands are imported when they are used."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import click


@dataclass(frozen=True)
class Entry:
    """Where a subcommand is, and its line in `mint --help`."""

    where: str
    """ "module:attribute"."""
    line: str


COMMANDS: Mapping[str, Entry] = MappingProxyType(
    {
        "serve": Entry("mint.cli.serve:serve", "Run a server on this machine."),
        "keys": Entry("mint.cli.keys:keys", "Make, list and revoke API keys of a server."),
        "status": Entry("mint.cli.status:status", "Show who runs what on a server."),
        "runs": Entry("mint.cli.runs:runs", "Look at training runs by their folders."),
        "checkpoints": Entry(
            "mint.cli.checkpoints:checkpoints", "List, download, push and delete checkpoints."
        ),
        "import": Entry("mint.cli.adapters:import_", "Make a checkpoint of a PEFT LoRA."),
        "export": Entry(
            "mint.cli.adapters:export", "Write a checkpoint as a PEFT adapter or a merged model."
        ),
        "doctor": Entry("mint.cli.doctor:doctor", "Check installation, server and its numbers."),
        "sample": Entry("mint.cli.sample:sample", "Ask a base model or a checkpoint."),
    }
)


class LazyGroup(click.Group):
    """A group that knows its subcommands by name only: help and version import nothing heavy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.where.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.line) for name, entry in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mint-rl", prog_name="mint")
def main() -> None:
    """MinT: post-training you own."""


if __name__ == "__main__":
    main()
