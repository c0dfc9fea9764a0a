"""docs/en/recipes.md and its twin name what is there: files, metrics, variables, doors."""

import asyncio
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from docs.tables import LANGUAGES
from tests.docs.pages import ROOT
from tests.recipe.fake_service import FakeService
from tests.recipe.rl.guessing import Data, alternating, config, guesses, rows

from docs import recipes
from mint.recipe.rl.config import AsyncConfig, KLReferenceConfig, StreamMinibatchConfig
from mint.recipe.rl.train import main

LONGEST_WAY = 1500
"""Lines from `main` to the request, as issue 5 has it."""


def page(language: str) -> str:
    return (ROOT / "docs" / language / "recipes.md").read_text()


def table_rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


# ------------------------------------------------------------- the way of one step


def way() -> list[tuple[str, list[str]]]:
    """Module and names of each row of the table."""
    found = []
    for cells in table_rows(page("en")):
        linked = re.match(r"\[`(.+)`\]\(\.\./\.\./src/mint/recipe/(.+)\.py\)", cells[0])
        if linked:
            assert linked[1] == f"{linked[2]}.py"
            found.append((linked[2].replace("/", "."), re.findall("`(.+?)`", cells[1])))
    return found


def test_the_way_of_one_step_is_short_enough_to_read():
    lines = 0
    for module, names in way():
        for name in names:
            found: Any = import_module(f"mint.recipe.{module}")
            for part in name.split("."):
                found = getattr(found, part)
            lines += len(inspect.getsource(found).splitlines())

    assert len(way()) > 15
    assert 500 < lines < LONGEST_WAY


# ------------------------------------------------------------------------ metrics


def names_of_metrics(language: str) -> Iterator[str]:
    """Names in the tables of metrics, as written: with {a,b}, <placeholder> and … in them."""
    _, first, rest = page(language).partition("| `step`")
    text = first + rest.partition("\n## ")[0]
    for cells in table_rows(text):
        if len(cells) == 2:
            yield from re.findall("`([^` ]+)`", cells[0])


def pattern(name: str) -> str:
    """`a/{b,c}/<d>…` as a regular expression."""
    parts = re.split(r"(\{[^}]+\}|<[^>]+>|…)", name)
    return "".join(_piece(part) for part in parts)


def _piece(part: str) -> str:
    if part.startswith("{"):
        return f"({'|'.join(re.escape(one) for one in part[1:-1].split(','))})"
    if part.startswith("<"):
        return "[^/:]+(/[^/:]+)?" if part == "<name>" else "[^/:]+"
    return ".+" if part == "…" else re.escape(part)


def keys_of_runs(folder: Path) -> set[str]:
    """What all three schedules write, with everything switched on that adds a number."""
    keys: set[str] = set()
    schedules: list[dict[str, Any]] = [
        {},
        {"stream_minibatch_config": StreamMinibatchConfig(groups_per_batch=2, num_minibatches=1)},
        {"async_config": AsyncConfig(max_steps_off_policy=1, groups_per_batch=2)},
    ]
    batch = [guesses(1, 1, tag=tag)[0][0] for tag in ("even", "odd")]
    for number, schedule in enumerate(schedules):
        run = config(
            folder / str(number),
            FakeService(alternating()),
            [],
            dataset_builder=Data(batches=[batch] * 2, test=guesses(1)),
            eval_every=1,
            kl_penalty_coef=0.1,
            kl_reference_config=KLReferenceConfig(base_model="test/tiny"),
            compute_post_kl=True,
            rollout_error_tolerance=True,
            **schedule,
        )
        asyncio.run(main(run))
        keys |= {key for row in rows(folder / str(number)) for key in row}
    return keys


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return keys_of_runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_number_that_a_run_writes_is_described(language: str, written: set[str]):
    known = [re.compile(pattern(name)) for name in names_of_metrics(language)]
    own = {"optimizer_steps"}  # of the fake service's optimizer: without a slash, as the page says

    missing = {key for key in written - own if not any(one.fullmatch(key) for one in known)}

    assert len(known) > 30
    assert missing == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_number_of_health_on_the_page_is_written(language: str, written: set[str]):
    named = [name for name in names_of_metrics(language) if name.startswith("health/")]

    for name in named:
        for one in _alternatives(name):
            assert one in written


def _alternatives(name: str) -> list[str]:
    found = re.search(r"\{([^}]+)\}", name)
    if not found:
        return [name]
    return [name.replace(found[0], one) for one in found[1].split(",")]


# --------------------------------------------------------- variables, doors, fields


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("script", ["rl_hyperparameters", "multi_turn_rl"])
def test_variables_of_a_script_are_on_the_page_with_their_defaults(script: str, language: str):
    documented = re.findall(
        r"^    (MINT_\w+) +(\S+)", (ROOT / "recipes" / f"{script}.py").read_text(), re.MULTILINE
    )
    shown = {(cells[0], cells[1]) for cells in table_rows(page(language))}

    assert len(documented) > 5
    assert [
        name for name, default in documented if (f"`{name}`", f"`{default}`") not in shown
    ] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_doors_for_ported_code_are_there(language: str):
    found = re.search(r"`rl\.\{types.+?`exceptions`", page(language), re.DOTALL)
    assert found
    doors = re.findall("`([^`]+)`", found[0])
    modules = [module for door in doors for module in _alternatives(door)]

    assert len(modules) > 20
    for module in modules:
        import_module(f"mint.recipe.{module}")


def test_a_field_has_the_words_of_its_declaration_or_ours_and_not_both():
    silent = {one.full_name for one in recipes.fields() if one.docstring is None}

    assert silent == set(recipes.WORDS)
