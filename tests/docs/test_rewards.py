"""docs/en/rewards.md, its twin and the reference behind them name what is there."""

import ast
import re
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from docs.tables import LANGUAGES
from tests.docs.pages import ROOT

from mint import rl_core
from mint.recipe import grading, sandbox
from mint.recipe.rl.run_health import ExaminedStep, RunHealth
from mint.recipe.rl.step_health import StepHealth
from mint.rl_core import RLAdapter, RLConfig
from mint.rl_core.config import VARIABLES

CAUTIONS = {"en": "## Five cautions", "zh": "## 五点提醒"}
_TEST = re.compile(r"\[`(test_\w+)`\]\(\.\./\.\./(tests/[\w/]+\.py)\)")


def section(language: str, room: str) -> str:
    """What the reference has under a room's heading."""
    text = (ROOT / "docs" / language / "api.md").read_text()
    _, _, rest = text.partition(f"\n### {room}\n")
    return re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]


def names(text: str) -> set[str]:
    """The Python names within backticks."""
    return set(re.findall(r"\w+", " ".join(re.findall("`([^`]+)`", text))))


def public_names(room: ModuleType) -> set[str]:
    """Those that load when used, or those that its __init__.py imports."""
    return set(vars(room).get("_NAMES", ())) or {
        name
        for name, value in vars(room).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("room", [rl_core, grading, sandbox], ids=lambda room: room.__name__)
def test_every_public_name_of_a_room_is_described(room: ModuleType, language: str):
    wanted = public_names(room)

    assert len(wanted) > 10
    assert wanted - names(section(language, room.__name__)) == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_everything_of_an_adapter_is_described(language: str):
    ours = {name for name in dir(RLAdapter) if not name.startswith("_")}
    internal = {"bind", "speaks_for"}  # called by runs
    of_the_constructor = {"tokenizer", "model_info", "seed"}

    described = names(section(language, "mint.rl_core"))

    assert ours - internal - described == set()
    assert of_the_constructor <= described


@pytest.mark.parametrize("language", LANGUAGES)
def test_defaults_of_a_short_run_are_those_of_its_config(language: str):
    call = re.search(r"`(RLConfig\([^`]+\))`", section(language, "mint.rl_core"))
    assert call
    tree = ast.parse(call[1], mode="eval").body
    assert isinstance(tree, ast.Call)
    told = {word.arg: ast.literal_eval(word.value) for word in tree.keywords}

    assert told == {
        field.name: field.default
        for field in fields(RLConfig)
        if field.name != "model" and field.default is not MISSING
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_variables_of_a_short_run_are_described(language: str):
    text = section(language, "mint.rl_core")
    braced = re.search(r"`MINT_RL_\{([A-Z_,]+)\}`", text)
    assert braced
    told = names(text) | {f"MINT_RL_{name}" for name in braced[1].split(",")}

    assert set(VARIABLES.values()) - told == set()


def health(**counts: Any) -> StepHealth:
    """Of a step as the page has it, but for some counts."""
    usual: dict[str, Any] = {
        "groups": 8, "largest_group": 6, "groups_equal": 0, "datums": 48,
        "datums_without_signal": 0, "max_tokens": 16,
    }  # fmt: skip
    return StepHealth(**{**usual, **counts})


def test_what_the_doctor_says_on_the_page_is_what_it_says():
    text = (ROOT / "docs" / "en" / "rewards.md").read_text()
    wrong = health(episodes=32, largest_group=4, groups_equal=8, datums=0)
    failed = [health(episodes=48, scored_too_late=6), health(episodes=48, scoring_failed=6)]

    assert f"\n{wrong.advice()}\n" in text
    for one in failed:
        [sentence] = RunHealth(Path(), [ExaminedStep(0, 0.5, one)], {}).findings()
        assert f"\n{sentence}\n" in text


def cautions(language: str) -> list[list[tuple[str, str]]]:
    """Names and files of the tests in each row of the page's last table."""
    text = (ROOT / "docs" / language / "rewards.md").read_text()
    _, _, rest = text.partition(CAUTIONS[language])
    rows = [line for line in rest.splitlines() if line.startswith("| ")][1:]
    return [_TEST.findall(row) for row in rows if not row.startswith("| ---")]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_of_the_five_cautions_names_tests_that_are_there(language: str):
    rows = cautions(language)

    assert len(rows) == 5
    assert all(rows)
    assert rows == cautions("en")
    for test, file in {one for row in rows for one in row}:
        assert f"def {test}(" in Path(ROOT, file).read_text(), test
