"""A program cannot write its verdict: whatever it does, it scores what its answers are worth."""

import json
import textwrap
from typing import Any

import pytest
from tests.recipe.sandbox.programs import PATIENT

from mint.recipe.exceptions import DataValidationError
from mint.recipe.sandbox import (
    FunctionCase,
    Grade,
    Limits,
    ProgramCase,
    Sandbox,
    grade_function,
    grade_program,
)

SQUARES = [FunctionCase([3], 9), FunctionCase([-4], 16)]
RIGHT = "def square(x): return x * x"
FIRM = Limits(wall_s=20.0, cpu_s=20.0, output_bytes=100_000)


async def grade(sandbox: Sandbox, source: str, cases: list[FunctionCase] = SQUARES) -> Grade:
    return await grade_function(sandbox, textwrap.dedent(source), "square", cases, limits=FIRM)


def outcomes(graded: Grade) -> list[str]:
    return [case.outcome for case in graded.cases]


FORGERIES = {
    "prints that it passed": """
        def square(x):
            print("PASSED"); print('{"passed": true}'); print("2 passed in 0.01s")
        """,
    "ends with exit code 0 before it is called": "import sys; sys.exit(0)",
    "ends at once while it is called": """
        import os
        def square(x): os._exit(0)
        """,
    "raises SystemExit that says success": """
        def square(x): raise SystemExit(0)
        """,
    "replaces what writes the answer": """
        import json
        json.dump = lambda value, file: file.write('"PASSED"')
        json.dumps = lambda value: "true"
        def square(x): return None
        """,
    "returns an object that equals everything": """
        class Equal:
            __eq__ = lambda self, other: True
            __hash__ = object.__hash__
        def square(x): return Equal()
        """,
    "returns a number that equals everything": """
        class Equal(int):
            __eq__ = lambda self, other: True
            __ne__ = lambda self, other: False
            __hash__ = int.__hash__
        def square(x): return Equal(7)
        """,
    "replaces built-ins": """
        import builtins
        builtins.all = builtins.any = builtins.bool = lambda *_: True
        builtins.isinstance = lambda *_: True
        def square(x): return 7
        """,
    "replaces stdout": """
        import io, sys
        sys.stdout = sys.stderr = sys.__stdout__ = io.StringIO()
        def square(x): return 7
        """,
    "writes other answers to every descriptor": """
        import os
        def square(x):
            for fd in range(30):
                try: os.write(fd, b"true")
                except OSError: pass
            return 7
        """,
    "answers twice, once each way": """
        import os
        def square(x):
            for fd in range(3, 10):
                try: os.write(fd, str(x * x).encode() + b"\\n")
                except OSError: pass
            return -1
        """,
    "adds to its answer once it has returned": """
        import os, threading, time
        def later():
            while True:
                for fd in range(3, 10):
                    try: os.write(fd, b" ]}")
                    except OSError: pass
        def square(x):
            threading.Thread(target=later, daemon=True).start()
            time.sleep(0.2)
            return x * x
        """,
    "looks for the expected value in its memory": """
        import gc, sys
        def square(x):
            seen = repr([o for o in gc.get_objects() if isinstance(o, dict) and "expected" in o])
            frame = sys._getframe()
            while frame:
                for name in ("expected", "value", "case", "cases"):
                    if name in frame.f_locals: return frame.f_locals[name]
                if "expected" in (frame.f_locals.get("asked") or {}): return frame.f_locals["asked"]["expected"]
                frame = frame.f_back
            return seen
        """,
    "looks for the expected value in files and arguments": """
        import os, sys
        def square(x):
            texts = [open(name).read() for name in os.listdir() if os.path.isfile(name)]
            for line in " ".join([*texts, *sys.argv]).split():
                if line.startswith("expected="): return int(line.removeprefix("expected="))
            return len(texts)
        """,
    "says true, which equals 1": "def square(x): return True",
    "says a text": "def square(x): return str(x * x)",
    "says a list": "def square(x): return [x * x]",
    "says that it is no number": "def square(x): return float('nan')",
    "says infinity": "def square(x): return float('inf')",
    "kills itself": """
        import os
        def square(x): os.kill(os.getpid(), 9)
        """,
    "stops answering": """
        def square(x):
            while True: pass
        """,
    "is no Python": "def square(x): return x *",
    "has a byte that is no text": "def square(x): return '\udc80'\n\udc80",
    "is empty": "",
    "has another name": "def sqr(x): return x * x",
}  # fmt: skip


@pytest.mark.parametrize("source", FORGERIES.values(), ids=FORGERIES)
async def test_a_candidate_scores_nothing_that(sandbox: Sandbox, source: str):
    cases = [FunctionCase([1], 1), *SQUARES] if "True" in source else SQUARES
    if "while True: pass" in source:
        graded = await grade_function(
            sandbox, textwrap.dedent(source), "square", cases, limits=Limits(wall_s=1.0)
        )
    else:
        graded = await grade(sandbox, source, cases)
    assert graded.share == 0.0, graded


async def test_the_right_answer_passes(sandbox: Sandbox):
    graded = await grade(sandbox, RIGHT)
    assert (graded.share, graded.passed, graded.all_passed) == (1.0, 2, True), graded


async def test_partial_credit_is_the_share_of_cases(sandbox: Sandbox):
    graded = await grade(sandbox, "def square(x): return x * 3")
    assert outcomes(graded) == ["passed", "wrong"]
    assert (graded.share, graded.all_passed) == (0.5, False)


async def test_what_a_candidate_prints_is_no_part_of_its_answer(sandbox: Sandbox):
    graded = await grade(sandbox, "print('hello')\ndef square(x): print(x); return x * x")
    assert graded.all_passed
    assert graded.cases[0].result.stderr == "hello\n3\n"


async def test_a_thread_left_behind_does_not_hold_up_the_answer(sandbox: Sandbox):
    source = """
    import threading, time
    def square(x):
        threading.Thread(target=time.sleep, args=(600,)).start()
        return x * x
    """
    assert (await grade(sandbox, source)).all_passed


async def test_what_one_case_changes_is_not_there_for_the_next(sandbox: Sandbox):
    source = """
    import os, builtins
    count = 0
    def square(x):
        global count
        seen = [count, hasattr(builtins, "trace"), os.path.exists("trace")]
        count, builtins.trace = 1, True
        open("trace", "w").close()
        return seen
    """
    cases = [FunctionCase([i], [0, False, False]) for i in range(4)]
    assert (await grade(sandbox, source, cases)).all_passed


async def test_each_way_to_fail_is_told_apart(sandbox: Sandbox):
    source = """
    import time, os, sys
    def square(x):
        if x == 0: return 1
        if x == 1: os._exit(0)
        if x == 2: raise ValueError("two")
        if x == 3: time.sleep(600)
        if x == 4:
            while True: print("x" * 1000)
    """
    cases = [FunctionCase([x], x * x) for x in range(5)]
    graded = await grade_function(
        sandbox, textwrap.dedent(source), "square", cases, limits=Limits(wall_s=3.0)
    )
    assert outcomes(graded) == ["wrong", "no_answer", "crashed", "timed_out", "over_limit"]
    assert "ValueError: two" in graded.cases[2].detail


BOMBS = {
    "10**5 NaNs": "'[' + 'NaN,' * 10**5 + 'NaN]'",
    "deep nesting": "'[' * 10**5",
    "deep and closed": "'[' * 40_000 + ']' * 40_000",
    "a huge integer": "'9' * 90_000",
    "a float beyond floats": "'1e999'",
    "bytes that are no text": "b'\\xff\\xfe'",
    "a lone surrogate": "'\"\\\\ud800\"'",
    "many keys": "'{' + ','.join(f'\"{i}\":{i}' for i in range(9000)) + '}'",
    "more than is read": "'[' + '1,' * 10**7 + '1]'",
    "nothing": "''",
    "a NUL": "'\\0'",
}


@pytest.mark.parametrize("answer", BOMBS.values(), ids=BOMBS)
async def test_an_answer_made_to_break_its_reader_is_just_wrong(sandbox: Sandbox, answer: str):
    source = f"""
    import os
    def square(x):
        answer = {answer}
        answer = answer if isinstance(answer, bytes) else answer.encode()
        for fd in range(3, 10):
            try:
                while answer:
                    answer = answer[os.write(fd, answer):]
            except OSError:
                pass
        os._exit(0)
    """
    assert (await grade(sandbox, source)).share == 0.0


async def test_comparison_is_done_on_plain_values_outside(sandbox: Sandbox):
    seen: list[Any] = []

    def compare(returned: Any, expected: Any) -> bool:
        seen.append((returned, expected))
        return sorted(returned) == sorted(expected)

    source = "def square(x): return {'a': (2, 1)}['a']"
    cases = [FunctionCase([0], (1, 2))]
    graded = await grade_function(sandbox, source, "square", cases, compare=compare)
    assert graded.all_passed
    assert seen == [([2, 1], [1, 2])]


async def test_a_comparison_that_raises_is_a_no_that_says_so(sandbox: Sandbox):
    cases = [FunctionCase([0], 1.0)]
    graded = await grade_function(
        sandbox, "def square(x): return None", "square", cases, compare=lambda a, b: abs(a - b) < 1
    )
    assert graded.cases[0].outcome == "wrong"
    assert "compare raised TypeError" in graded.cases[0].detail


async def test_keywords_and_nested_values_go_in_and_out(sandbox: Sandbox):
    value = {"a": [1, 2.5, None, True, "ü\n\"'"], "b": {}}
    cases = [FunctionCase([value], value, {"again": [value]})]
    source = "def square(x, again):\n    assert again == [x]\n    return x"
    assert (await grade(sandbox, source, cases)).all_passed


async def test_a_program_is_graded_by_what_it_writes(sandbox: Sandbox):
    source = "a, b = map(int, input().split())\nprint(a + b, ' ')\nprint()"
    cases = [ProgramCase("1 2\n", "3\n"), ProgramCase("5 6\n", "11"), ProgramCase("1 1\n", "3")]
    graded = await grade_program(sandbox, source, cases, limits=PATIENT)
    assert outcomes(graded) == ["passed", "passed", "wrong"]


@pytest.mark.parametrize(
    "source",
    [
        "print('PASSED')",
        "raise SystemExit(0)",
        "print(3); raise SystemExit(1)",  # the answer, and a failure
        "import sys; sys.stderr.write('3')",
        "import os; os.write(1, b'3\\xff')",
        "import os; os.fork(); print(3)",
    ],
)
async def test_a_program_scores_nothing_that(sandbox: Sandbox, source: str):
    graded = await grade_program(sandbox, source, [ProgramCase("1 2", "3")], limits=PATIENT)
    assert graded.share == 0.0


async def test_another_language_is_a_command(sandbox: Sandbox):
    graded = await grade_program(
        sandbox,
        "read a b; echo $((a + b))",
        [ProgramCase("1 2\n", "3")],
        command=("sh", "main.sh"),
        file_name="main.sh",
        limits=PATIENT,
    )
    assert graded.all_passed, graded


async def test_a_grader_without_cases_refuses_to_say_anything(sandbox: Sandbox):
    with pytest.raises(DataValidationError, match="no cases"):
        await grade_program(sandbox, "", [])


@pytest.mark.parametrize(
    ("case", "named"),
    [
        (FunctionCase([{1, 2}], 1), r"cases\[0\].arguments"),
        (FunctionCase([1], float("nan")), r"cases\[0\].expected"),
        (FunctionCase([1], 1, {"x": object()}), r"cases\[0\].keywords"),
    ],
)
async def test_cases_that_json_cannot_say_are_refused(
    sandbox: Sandbox, case: FunctionCase, named: str
):
    with pytest.raises(DataValidationError, match=named):
        await grade_function(sandbox, RIGHT, "square", [case])


async def test_a_name_with_code_in_it_is_refused(sandbox: Sandbox):
    with pytest.raises(DataValidationError, match="not the name"):
        await grade_function(sandbox, RIGHT, "square(1) or print", SQUARES)


async def test_expected_values_are_not_in_what_the_program_is_given(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    given: list[str] = []
    run = sandbox.run

    async def noting(files: Any, command: Any, limits: Any = None, **named: Any):
        given.append(json.dumps([dict(files), list(command), named]))
        return await run(files, command, limits, **named)

    monkeypatch.setattr(sandbox, "run", noting)
    await grade(sandbox, RIGHT, [FunctionCase([1], 123454321)])
    assert len(given) == 1
    assert "123454321" not in given[0]
