"""What the pages say, tried out."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.docs.pages import ROOT, anchors, as_script, blocks, links, pages

from docs import tables
from mint.cli.main import main
from mint.core.losses import LOSSES, REFUSED
from mint.testing import LocalService

WITH_PYTHON = [page for page in pages() if any(blocks(page, "python"))]
MAKE_VERBS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", WITH_PYTHON, ids=str)
def test_the_python_on_a_page_runs_from_top_to_bottom(
    page: Path, service: LocalService, tmp_path: Path
):
    script = tmp_path / page.with_suffix(".py").name
    script.write_text(as_script(page))

    ran = subprocess.run(
        [sys.executable, str(script)],
        env=service.environment(), cwd=tmp_path, capture_output=True, text=True, timeout=200,
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


def leaves(command: click.Command, name: str) -> Iterator[str]:
    """Full names of all commands below `command`."""
    if not isinstance(command, click.Group):
        yield name
        return
    context = click.Context(command)
    for child in command.list_commands(context):
        found = command.get_command(context, child)
        assert found is not None
        yield from leaves(found, f"{name} {child}")


def test_every_mint_command_is_described():
    text = "\n".join((ROOT / page).read_text() for page in pages())

    assert [name for name in leaves(main, "mint") if name not in text] == []


def test_every_loss_has_a_row():
    rows = (ROOT / "docs/en/concepts.md").read_text()

    assert [name for name in [*LOSSES, *REFUSED] if f"| `{name}` |" not in rows] == []


@pytest.mark.parametrize("page", sorted(tables.PAGES.glob("*.md")), ids=lambda path: path.name)
def test_tables_are_as_the_code_has_them(page: Path):
    text = page.read_text()

    assert text == tables.renewed(text), "run: python docs/tables.py"


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
