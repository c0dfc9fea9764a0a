"""mint doctor: what is installed, whether a server answers, and whether its numbers agree; or what
a training run had to learn from."""

import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mint.cli.output import hush_libraries, one_line, plain_failures, size, table
from mint.core.errors import ConfigError, MintError

if TYPE_CHECKING:
    from mint.cli.parity import Parity
    from mint.client.settings import ClientSettings
    from mint.recipe.rl.run_health import RunHealth

_PACKAGES = ("mint-rl", "tinker", "torch", "transformers")
_LITTLE_DISK = 2 * 2**30
"""A converted model takes 0.6 GiB, a database and checkpoints some more."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    about: str
    is_good: bool
    says: str


@click.command()
@click.argument("run_folder", required=False, type=click.Path(path_type=Path))
@click.option("--parity", is_flag=True, help="Compare the served model's trainer and sampler.")
@click.option("--model", metavar="NAME", help="For --parity.  [default: the server's one model]")
@click.option("--checkpoint", metavar="PATH", help="For --parity: saved weights to compare with.")
@click.option("--base-url", metavar="URL", help="The server.  [default: as for the SDK]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for scripts.")
def doctor(
    run_folder: Path | None,
    parity: bool,
    model: str | None,
    checkpoint: str | None,
    base_url: str | None,
    as_json: bool,
) -> None:
    """Check the installation and the server; with --parity, the server's numbers too.

    --parity makes a small adapter (or takes a checkpoint), draws tokens from it, and has them
    scored again by the training pass and as a prompt.

    With the log folder of a training run: what its steps had to learn from, and what to change.
    Nothing else is looked at then.

    Exit status 1 says that something is wrong.
    """
    if run_folder is not None:
        if parity or model or checkpoint or base_url:
            raise click.UsageError("A run folder is examined alone: leave the other options out.")
        _examine(run_folder, as_json)
        return
    if (model or checkpoint) and not parity:
        raise click.UsageError("--model and --checkpoint are for --parity.")
    hush_libraries()
    from mint.client import settings

    with plain_failures():
        config = settings.read(base_url=base_url)
        findings = list(_findings(config))
        compared = _parity(config, model, checkpoint) if parity else None
    good = all(one.is_good for one in findings) and (compared is None or compared.is_clean)
    if as_json:
        shown = {"ok": good, "findings": [asdict(one) for one in findings]}
        click.echo(json.dumps({**shown, "parity": compared and compared.as_dict()}))
    else:
        click.echo("\n".join([*_lines(findings), *(_parity_lines(compared) if compared else ())]))
    if not good:
        raise SystemExit(1)


def _examine(run_folder: Path, as_json: bool) -> None:
    from mint.recipe.rl.run_health import examine_run

    with plain_failures():
        health = examine_run(run_folder)
    shown = json.dumps(_as_dict(health)) if as_json else "\n".join(_health_lines(health))
    click.echo(shown)
    if not health.is_healthy:
        raise SystemExit(1)


def _health_lines(health: "RunHealth") -> Iterator[str]:
    yield from health.lines()
    if health.steps:
        rows = [(what, f"{mean:.0%}", f"{last:.0%}") for what, mean, last in health.shares()]
        yield ""
        yield table(("SHARE OF", "IN ALL STEPS", "IN THE LAST"), rows)


def _as_dict(health: "RunHealth") -> dict[str, Any]:
    return {
        "ok": health.is_healthy,
        "lines": health.lines(),
        "steps": [{"step": one.step, **one.health.metrics()} for one in health.steps],
    }


def _findings(config: "ClientSettings") -> Iterator[Finding]:
    versions = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    yield Finding("versions", True, f"{versions}, Python {platform.python_version()}")
    home = config.embedded.home
    free = shutil.disk_usage(next(one for one in (home, *home.parents) if one.exists())).free
    enough = free >= _LITTLE_DISK
    much = "" if enough else f"; below {size(_LITTLE_DISK)} a model may not fit. Make room"
    yield Finding("disk", enough, f"{size(free)} free at {home}{much}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Finding("memory", True, f"{size(memory)} on this machine")
    yield from _server(config)


def _server(config: "ClientSettings") -> Iterator[Finding]:
    from mint.client.checkpoints import CheckpointStore
    from mint.client.status import ask, running

    try:
        connection = running(config)
    except ConfigError as error:
        fatal = config.base_url is not None
        hint = "" if fatal else " One starts when a script needs it."
        yield Finding("server", not fatal, f"{one_line(str(error))}{hint}")
        return
    try:
        told = ask(connection)
        with CheckpointStore(connection) as server:
            offered = server.server()
    except MintError as error:
        yield Finding("server", False, one_line(str(error)))
        return
    yield Finding("server", True, f"{connection.base_url} answers: mint {told['version']}")
    engine = told["engine"]
    yield Finding("engine", engine["state"] == "up", f"{engine['state']}: {engine['detail']}")
    if capacity := engine["capacity"]:
        yield Finding("compute", True, _compute(capacity))
    names = ", ".join(model["name"] for model in offered["models"]) or "none by name"
    yield Finding("models", True, names + ("; others on demand" if offered["on_demand"] else ""))


def _compute(capacity: dict[str, Any]) -> str:
    used, limit = size(capacity["memory_bytes"]), size(capacity["memory_limit_bytes"])
    return (
        f"{capacity['device']}, {capacity['dtype']}, {capacity['threads']} CPU threads; memory "
        f"{used} of {limit}"
    )


def _parity(config: "ClientSettings", model: str | None, checkpoint: str | None) -> "Parity":
    from mint.cli.parity import check_parity
    from mint.client.connect import check, connect

    found = connect(config)
    check(found)
    return check_parity(found, model=model, checkpoint=checkpoint)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _lines(findings: list[Finding]) -> Iterator[str]:
    wide = max(len(one.about) for one in findings)
    for one in findings:
        yield f"{'ok ' if one.is_good else 'BAD'}  {one.about.ljust(wide)}  {one.says}"


def _parity_lines(parity: "Parity") -> Iterator[str]:
    rows = [
        (gap.between, f"{gap.temperature:g}", str(gap.tokens), f"{gap.mean:.2g}", f"{gap.max:.2g}")
        for gap in parity.gaps
    ]
    yield ""
    yield f"parity of {parity.checkpoint or f'a new adapter on {parity.model}'}, gaps in nats:"
    yield table(("BETWEEN", "TEMPERATURE", "TOKENS", "MEAN", "MAX"), rows)
    yield f"the adapter moves logprobs by up to {parity.adapter_moves_by:.2g}"
    yield parity.verdict
