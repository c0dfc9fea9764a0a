"""The scripts, what came of them, and the table of both in the docs."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.sdks.environments import HERE, ROOT

PAGE = ROOT / "docs" / "en" / "sdk-versions.md"
_MARKED = re.compile(r"(<!-- run: make test-sdks -->\n).*?(<!-- end -->)", re.DOTALL)


class Outcome(Enum):
    """What came of one script with one version, as the table shows it."""

    PASSED = "yes"
    FAILED = "FAILS"
    SKIPPED = "–"


@dataclass(frozen=True)
class Script:
    """One capability."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def title(self) -> str:
        """The first line of its docstring."""
        said = ast.get_docstring(ast.parse(self.path.read_text())) or ""
        return said.partition("\n")[0]

    @property
    def needs_torch(self) -> bool:
        return "\nimport torch\n" in self.path.read_text()


@dataclass(frozen=True)
class Result:
    version: str
    script: Script
    outcome: Outcome
    detail: str
    """Why it failed, or was left out."""
    took_s: float


def scripts() -> list[Script]:
    return [Script(path) for path in sorted(HERE.glob("scripts/*.py"))]


def as_text(results: Sequence[Result]) -> str:
    """For a terminal: a row a script, a column a version."""
    versions, rows = _rows(results)
    width = max(len(name) for name in rows)
    lines = [" " * width + "".join(version.rjust(9) for version in versions)]
    for name, row in rows.items():
        lines.append(name.ljust(width) + "".join(row[v].outcome.value.rjust(9) for v in versions))
    return "\n".join(lines)


def as_markdown(results: Sequence[Result]) -> str:
    versions, rows = _rows(results)
    lines = [
        "| | " + " | ".join(versions) + " |",
        "| --- |" + " --- |" * len(versions),
    ]
    for row in rows.values():
        title = next(iter(row.values())).script.title
        lines.append(f"| {title} | " + " | ".join(row[v].outcome.value for v in versions) + " |")
    return "\n".join(lines)


def write_docs(results: Sequence[Result]) -> None:
    page = PAGE.read_text()
    PAGE.write_text(
        _MARKED.sub(lambda found: f"{found[1]}{as_markdown(results)}\n{found[2]}", page)
    )


def in_docs() -> tuple[list[str], dict[str, list[str]]]:
    """The table as the page has it: versions, and the cells of each title."""
    found = _MARKED.search(PAGE.read_text())
    assert found, f"{PAGE} has lost its marks"
    lines = found[0].splitlines()[1:-1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return rows[0][1:], {row[0]: row[1:] for row in rows[2:]}


def _rows(results: Sequence[Result]) -> tuple[list[str], dict[str, dict[str, Result]]]:
    versions = list(dict.fromkeys(result.version for result in results))
    rows: dict[str, dict[str, Result]] = {}
    for result in sorted(results, key=lambda result: result.script.name):
        rows.setdefault(result.script.name, {})[result.version] = result
    return versions, rows
