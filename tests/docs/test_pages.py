"""What the pages say, tried out."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.docs.pages import ROOT, anchors, as_script, blocks, is_chinese, links, pages

import mint
from docs import tables
from mint.cli.main import main
from mint.core.losses import LOSSES, REFUSED
from mint.testing import LocalService

WITH_PYTHON = [
    page
    for page in pages()
    if any(blocks(page, "python")) and not is_chinese(page)  # there the code is the same
]
MAKE_VERBS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", WITH_PYTHON, ids=str)
def test_the_python_on_a_page_runs_from_top_to_bottom(
    page: Path, shared_service: LocalService, tmp_path: Path
):
    script = tmp_path / page.with_suffix(".py").name
    script.write_text(as_script(page))

    ran = subprocess.run(
        [sys.executable, str(script)],
        env=shared_service.environment(), cwd=tmp_path, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip

    assert ran.returncode == 0, f"{page} (lines are the page's):\n{ran.stderr}"


def test_readme_and_start_have_python_to_run():
    assert {Path("README.md"), Path("docs/en/start.md"), Path("docs/en/concepts.md")} <= set(
        WITH_PYTHON
    )


def shell_commands() -> Iterator[tuple[Path, str]]:
    for page in pages():
        for block in blocks(page, "bash"):
            for line in block.code.replace("\\\n", " ").splitlines():
                if command := line.partition(" #")[0].strip():
                    yield page, command


def command_path(words: list[str]) -> tuple[click.Command, list[str]]:
    """The `mint` command that `words` (after "mint") call, and what is left of them."""
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words[0])
        assert found, f"mint has no command {words[0]!r}"
        command, words = found, words[1:]
    return command, words


def test_every_mint_command_on_a_page_can_be_typed_as_it_stands():
    seen = 0
    for page, line in shell_commands():
        words = shlex.split(line.replace("$'", "'"))
        if words[0] != "mint":
            continue
        command, rest = command_path(words[1:])
        try:
            command.make_context(words[1], rest)  # reads the arguments, runs nothing
        except click.UsageError as error:
            pytest.fail(f"{page}: {line}: {error.format_message()}")
        seen += 1
    assert seen > 3


def test_every_make_verb_on_a_page_exists():
    for page, line in shell_commands():
        words = [word for word in shlex.split(line) if "=" not in word]
        if words and words[0] == "make":
            assert set(words[1:]) <= MAKE_VERBS, f"{page}: {line}"


def test_every_mint_command_is_described():
    text = "\n".join((ROOT / page).read_text() for page in pages())

    assert [name for name, _ in tables.leaves(main, "mint") if name not in text] == []


@pytest.mark.parametrize("language", tables.LANGUAGES)
def test_every_loss_has_a_row(language: str):
    rows = (ROOT / "docs" / language / "concepts.md").read_text()

    assert [name for name in [*LOSSES, *REFUSED] if f"| `{name}` |" not in rows] == []


@pytest.mark.parametrize(("page", "language"), list(tables.pages()), ids=str)
def test_tables_are_as_the_code_has_them(page: Path, language: str):
    text = page.read_text()

    assert text == tables.renewed(text, language), "run: python -m docs.tables"


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_lead_somewhere(page: Path):
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        target, _, fragment = link.partition("#")
        there = (page.parent / target) if target else page
        resolved = (ROOT / there).resolve()
        assert resolved.exists(), f"{page}: {link}"
        if fragment:
            assert fragment in anchors(resolved.relative_to(ROOT)), f"{page}: {link}"


@pytest.mark.parametrize("language", tables.LANGUAGES)
def test_every_route_has_a_row_that_says_what_it_does(language: str):
    rows = (ROOT / "docs" / language / "api.md").read_text()

    assert [
        tables.route_cell(route)
        for route in tables.routes()
        if not re.search(re.escape(f"| {tables.route_cell(route)} | ") + r"\w", rows)
    ] == []


def test_every_method_of_the_clients_is_described():
    text = (ROOT / "docs/en/api.md").read_text()
    internal = {"get_telemetry", "on_queue_state_change", "create", "holder"}  # public by name only

    for client in (
        mint.ServiceClient,
        mint.TrainingClient,
        mint.SamplingClient,
        mint.RestClient,
        mint.AdminClient,
    ):
        methods = {name for name in dir(client) if not name.startswith("_")} - internal
        missing = {n for n in methods if not n.endswith("_async") and f"{n}(" not in text}
        assert missing == set(), client
