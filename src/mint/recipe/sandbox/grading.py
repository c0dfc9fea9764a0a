"""Grading programs by what they answer, where the program cannot write the verdict.

The rule: what a program is asked goes in, what it answers comes out, and the two meet the expected
answer only out here. Each case is a process of its own, so nothing that one case changes, be it a
built-in, a module or a file, is there in the next.

Tests that run beside the program in one interpreter, such as asserts or a test runner behind its
source, are not offered: whatever would report their outcome can be written by the program. It can end
the process with exit code 0 before they run, print what they would print, replace `assert`'s operands
with objects that equal everything, replace the runner's functions, or read the expected values off
the stack.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mint.recipe.exceptions import DataValidationError
from mint.recipe.sandbox.answers import (
    MalformedAnswerError,
    Plain,
    parse_answer,
    plain,
    same_text,
    same_value,
)
from mint.recipe.sandbox.limits import Limits, Result
from mint.recipe.sandbox.sandbox import PYTHON, Sandbox
from mint.recipe.tasks import run_together

_DRIVER = Path(__file__).with_name("function_driver.py")

Outcome = Literal["passed", "wrong", "no_answer", "crashed", "timed_out", "over_limit"]
"""Of one case. "no_answer": it ended well without an answer that can be read; "over_limit": a limit
other than that of time ended it."""


@dataclass(frozen=True)
class ProgramCase:
    """What a program reads, and what it should write."""

    stdin: str
    expected: str


@dataclass(frozen=True)
class FunctionCase:
    """What a function is called with, and what it should return; all of it plain JSON values."""

    arguments: Sequence[Any]
    expected: Any
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseGrade:
    """What became of one case."""

    outcome: Outcome
    detail: str
    """For people: the answer's beginning, or why there is none."""
    result: Result

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


@dataclass(frozen=True)
class Grade:
    """What became of all cases, in their order."""

    cases: tuple[CaseGrade, ...]

    @property
    def passed(self) -> int:
        """How many passed."""
        return sum(case.passed for case in self.cases)

    @property
    def share(self) -> float:
        """Partial credit: the share that passed, 0 to 1."""
        return self.passed / len(self.cases)

    @property
    def all_passed(self) -> bool:
        return self.passed == len(self.cases)


async def grade_program(
    sandbox: Sandbox,
    source: str,
    cases: Sequence[ProgramCase],
    *,
    limits: Limits | None = None,
    compare: Callable[[str, str], bool] = same_text,
    command: Sequence[str] = (*PYTHON, "main.py"),
    file_name: str = "main.py",
) -> Grade:
    """Run a program once a case and compare what it writes to stdout.

    A case passes if the program ends by itself with exit code 0 and the texts agree.

    Args:
        limits: of each case.
        compare: (written, expected) -> whether they agree. An exception of its own counts as no, and
            is named in the case's detail: what was written may be anything.
        command: how to run the file, for another language or interpreter.

    Raises:
        DataValidationError: there are no cases.
        SandboxError: a program could not be started.
    """
    _check_there_are(cases)

    async def grade(case: ProgramCase) -> CaseGrade:
        result = await sandbox.run({file_name: source}, command, limits, stdin=case.stdin)
        return _trouble(result) or _compared(result, result.stdout, case.expected, compare)

    return Grade(tuple(await run_together(grade(case) for case in cases)))


async def grade_function(
    sandbox: Sandbox,
    source: str,
    name: str,
    cases: Sequence[FunctionCase],
    *,
    limits: Limits | None = None,
    compare: Callable[[Any, Any], bool] = same_value,
    python: Sequence[str] = PYTHON,
) -> Grade:
    """Call a function of a Python source once a case and compare what it returns.

    Arguments go in and the value comes out as JSON; so a tuple comes out as a list, and a value that
    JSON cannot say (a set, NaN) is a crash or no answer.

    Args:
        name: of the function, at the top of the source.
        limits: of each case.
        compare: (returned, expected) -> whether they agree, both plain JSON values. An exception of
            its own counts as no, and is named in the case's detail.
        python: the interpreter's command; ("python3",) where the source needs packages.

    Raises:
        DataValidationError: no cases, arguments or expected values that JSON cannot say, or a name
            that is none.
        SandboxError: a program could not be started.
    """
    _check_there_are(cases)
    if not name.isidentifier():
        raise DataValidationError(f"name={name!r} is not the name of a function.")
    asked = [_asked(name, i, case) for i, case in enumerate(cases)]
    expected = [plain(f"cases[{i}].expected", case.expected) for i, case in enumerate(cases)]
    files = {"candidate.py": source, "driver.py": await asyncio.to_thread(_DRIVER.read_text)}

    async def grade(question: str, value: Plain) -> CaseGrade:
        result = await sandbox.run(files, (*python, "driver.py"), limits, stdin=question)
        if trouble := _trouble(result):
            return trouble
        try:
            returned = parse_answer(result.stdout_bytes)
        except MalformedAnswerError as error:
            return CaseGrade("no_answer", f"{error}: {result.stdout!r:.200}", result)
        return _compared(result, returned, value, compare)

    graded = run_together(grade(*case) for case in zip(asked, expected, strict=True))
    return Grade(tuple(await graded))


def _check_there_are(cases: Sequence[object]) -> None:
    if not cases:
        raise DataValidationError("There are no cases: nothing can be passed or failed.")


def _asked(name: str, i: int, case: FunctionCase) -> str:
    arguments = plain(f"cases[{i}].arguments", list(case.arguments))
    keywords = plain(f"cases[{i}].keywords", dict(case.keywords))
    return json.dumps({"name": name, "arguments": arguments, "keywords": keywords})


def _trouble(result: Result) -> CaseGrade | None:
    """The grade of a run that did not end as a program should."""
    if result.timed_out:
        return CaseGrade("timed_out", f"ended after {result.wall_s:.1f} s", result)
    if result.killed_by:
        return CaseGrade("over_limit", f"ended for its {result.killed_by}", result)
    if result.exit_code != 0:
        ended = f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
        return CaseGrade("crashed", f"{ended}: {result.stderr[-300:]}", result)
    return None


def _compared(
    result: Result, answer: Any, expected: Any, compare: Callable[[Any, Any], bool]
) -> CaseGrade:
    try:
        agrees = bool(compare(answer, expected))
    except Exception as error:  # provoked by the answer, more often than not
        return CaseGrade("wrong", f"compare raised {type(error).__name__}: {error!s:.200}", result)
    return CaseGrade("passed" if agrees else "wrong", result.stdout[:300], result)
