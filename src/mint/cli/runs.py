"""mint runs: look at the folder that a training run leaves."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mint.cli.output import one_line, plain_failures, table

if TYPE_CHECKING:
    from mint.recipe.pages.run_record import Row, RunRecord

_LINES = 12
"""Steps shown on a terminal, evenly chosen; the page has all."""


@click.group()
def runs() -> None:
    """Look at training runs by their folders."""


@runs.command()
@click.argument("run_folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--html",
    "html",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page with curves, health and transcripts there.",
)
def show(run_folder: Path, html: Path | None) -> None:
    """Show how a run went: reward, lengths, KL and health.

    RUN_FOLDER is the log_path of the run, which may still be going on. The page is one file without
    scripts; it can be opened anywhere and sent to anyone who may read what the model said.
    """
    from mint.recipe.pages.run_page import run_page
    from mint.recipe.pages.run_record import read_run
    from mint.recipe.stores.whole_files import write_whole

    with plain_failures():
        record = read_run(run_folder)
        click.echo("\n".join(_summary(record)))
        click.echo("\n".join(one_line(line) for line in record.health.lines()))
        if html is not None:
            write_whole(html, run_page(run_folder))
            click.echo(f"Page: {html}")


def _summary(record: "RunRecord") -> list[str]:
    from mint.recipe.pages.run_record import evenly

    state = "finished" if record.is_finished else "not finished"
    head = [
        f"{record.config.get('model_name', 'model unknown')}, {len(record.steps)} steps, {state}"
    ]
    shown = evenly(record.steps, _LINES)
    rows = [[_cell(row, key) for key in _COLUMNS.values()] for row in shown]
    return [*head, table(tuple(_COLUMNS), rows)] if rows else head


_COLUMNS = {
    "STEP": "step",
    "REWARD": "env/all/reward/total",
    "MIXED GROUPS": "env/all/by_group/frac_mixed",
    "ANSWER TOKENS": "env/all/ac_tokens_per_turn",
    "ENTROPY": "optim/entropy",
    "KL TO BASE": "kl_policy_base",
    "SECONDS": "time/total",
}


def _cell(row: "Row", key: str) -> str:
    value = row.get(key)
    if value is None:
        return "-"
    return str(value) if key == "step" else f"{value:.3f}"
