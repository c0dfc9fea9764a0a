"""Tables of the docs that are made from the code: `python -m docs.tables` writes them anew.

A page marks where one goes:

    <!-- table: losses -->
    ...
    <!-- end -->

Their words are the code's, which are English. On a Chinese page a sentence appears as docs/chinese.py
has it, and in English as long as nobody has translated it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path

import click
from docs.chinese import CHINESE
from fastapi.routing import APIRoute

from docs import numerics, performance, recipes
from mint.cli.main import main as mint_command
from mint.core.losses import LOSSES, REFUSED
from mint.server.app import ROUTERS
from mint.server.http import health
from mint.server.settings_sources import all_settings, shown_default

DOCS = Path(__file__).parent
LANGUAGES = ("en", "zh")
OURS = re.compile("/api/v1/mint/|(?!/api/v1/)")
"""Paths that upstream's protocol knows nothing of."""

Say = Callable[[str], str]
"""An English sentence of the code, in the language of the page."""

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def losses(say: Say) -> str:
    """Every loss with its inputs, config keys and equation."""
    rows: list[Sequence[str]] = []
    for spec in LOSSES.values():
        inputs = ", ".join(
            f"`{entry.name}`" + ("" if entry.required else say(" (optional)"))
            for entry in spec.inputs
        )
        keys = ", ".join(f"`{name}` {key.default:g}" for name, key in spec.config.items())
        equation, source = say(spec.equation), say(spec.source)
        rows.append((f"`{spec.name}`", inputs, keys, f"`{equation}`", source))
    for name, reason in REFUSED.items():
        rows.append((f"`{name}`", "", "", f"{say('refused: ')}{say(reason)}", ""))
    heads = ("`loss_fn`", "`loss_fn_inputs`", "`loss_fn_config`")
    return _table((*heads, say("loss of one token"), say("source")), rows)


def routes() -> Iterator[APIRoute]:
    """All routes of the server, but for the one that answers for all others."""
    for router in ROUTERS:
        if router is not health.fallback:
            yield from (route for route in router.routes if isinstance(route, APIRoute))


def protocol_routes(say: Say) -> str:
    return _routes(say, ours=False)


def mint_routes(say: Say) -> str:
    return _routes(say, ours=True)


def route_cell(route: APIRoute) -> str:
    return f"`{' '.join(sorted(route.methods or ()))} {route.path}`"


def _routes(say: Say, *, ours: bool) -> str:
    rows = [
        (route_cell(route), say(_first_paragraph(route.endpoint)))
        for route in routes()
        if bool(OURS.match(route.path)) == ours
    ]
    return _table((say("route"), say("what it does")), rows)


def _first_paragraph(documented: Callable[..., object]) -> str:
    return " ".join(cleandoc(documented.__doc__ or "").split("\n\n")[0].split())


def commands(say: Say) -> str:
    """Every `mint` command with the first line of its help."""
    rows = [
        (f"`{name}`", say(command.get_short_help_str(200)))
        for name, command in leaves(mint_command, "mint")
    ]
    return _table((say("command"), say("what it does")), rows)


def settings(say: Say) -> str:
    """Every setting of a server, with its default and what it means."""
    rows = [
        (
            f"`{one.name}`", f"`{one.flag}`", f"`{one.variable}`", shown_default(one),
            say(one.meaning),
        )
        for one in all_settings()
    ]  # fmt: skip
    heads = ("setting", "flag", "variable", "default", "meaning")
    return _table([say(head) for head in heads], rows)


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """All commands below `command`, with their full names."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for child in command.list_commands(context):
        found = command.get_command(context, child)
        assert found is not None
        yield from leaves(found, f"{name} {child}")


def sdk_versions(say: Say) -> str:
    """What `make test-sdks` found, from the English page, where that command writes it."""
    page = (DOCS / "en" / "sdk-versions.md").read_text()
    found = re.search("<!-- run: make test-sdks -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    assert found, "docs/en/sdk-versions.md has lost its table"
    heads, _, *rows = (
        [say(cell.strip()) for cell in line.strip("|").split("|")] for line in found[1].splitlines()
    )
    return _table(heads, rows)


def claims(say: Say) -> str:
    """What benchmarks/results says of each claim."""
    return _table(*performance.claims(say))


def measured_on(say: Say) -> str:
    """Machine and versions of each of those results."""
    return _table(*performance.machines(say))


def slow_rewards(say: Say) -> str:
    """What benchmarks/results says of a step with slow rewards."""
    return _table(*performance.slow_rewards(say))


def real_model(say: Say) -> str:
    """What benchmarks/results says of bfloat16 on a real model."""
    return _table(*numerics.real_model(say))


def rl_config(say: Say) -> str:
    """Every field of an RL run's config."""
    return _table(*recipes.table(say))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(re.sub(" +", " ", f"| {' | '.join(line)} |") for line in lines)


TABLES: Mapping[str, Callable[[Say], str]] = {
    "losses": losses,
    "protocol_routes": protocol_routes,
    "mint_routes": mint_routes,
    "commands": commands,
    "settings": settings,
    "sdk_versions": sdk_versions,
    "claims": claims,
    "measured_on": measured_on,
    "scaling": performance.scaling,
    "slow_rewards": slow_rewards,
    "real_model": real_model,
    "rl_config": rl_config,
}


def renewed(page: str, language: str = "en") -> str:
    """The page with every marked table made anew."""

    def say(sentence: str) -> str:
        return CHINESE.get(sentence, sentence) if language == "zh" else sentence

    return _MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]](say)}\n{found[3]}", page)


def pages() -> Iterator[tuple[Path, str]]:
    """Every page that may hold tables, with its language."""
    for language in LANGUAGES:
        for path in sorted((DOCS / language).glob("*.md")):
            yield path, language


def main() -> None:
    for path, language in pages():
        path.write_text(renewed(path.read_text(), language))


if __name__ == "__main__":
    main()
