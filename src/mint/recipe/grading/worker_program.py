r"""The program of a worker: answers one request after the other, and may be killed at any moment.

A request and its answer are a line of JSON each. The limits are the kernel's: an alarm whose default
action ends the process works while the interpreter is inside one long multiplication, where a signal
handler or a thread would wait for it.

    python -P -m mint.recipe.grading.worker_program <bytes of memory>
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_FIRST_ERRORS = 10
_ERROR_CHARS = 300


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints is no answer
    _bound_memory(int(sys.argv[1]))
    for line in sys.stdin:
        try:
            answer = _answer(line)
        except MemoryError:
            answer = {"failure": "memory"}
        except RecursionError:
            answer = {"failure": "recursion"}
        _die_after(0)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(line: str) -> dict[str, Any]:
    request = json.loads(line)
    _die_after(request["seconds"])
    return _KINDS[request["kind"]](**request["arguments"])


# ------------------------------------------------------------------- the work


def ready(modules: list[str]) -> dict[str, Any]:
    """Imports what the work needs, so that the first request is no slower than the others.

    What libraries have to say about a model's text after that is noise.
    """
    for module in modules:
        import_module(module)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return {}


def compare_math(text: str, expected: str) -> dict[str, Any]:
    from math_verify import parse, verify

    def read(one: str) -> list[Any]:
        return parse(one, fallback_mode="no_fallback", parsing_timeout=None)  # type: ignore[arg-type]

    wanted = read(expected)
    if not wanted:
        return {"failure": "expected"}
    found = read(text)
    if not found:
        return {"reason": "no_answer"}
    equal = verify(wanted, found, timeout_seconds=None)
    return {"reason": "equal" if equal else "different"}


def check_schema(value: Any, schema: Any) -> dict[str, Any]:
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema)
    validator = kind(schema, registry=Registry())  # an empty one: nothing is fetched
    errors: list[str] = []
    try:
        for error in validator.iter_errors(value):
            errors.append(f"{error.json_path}: {error.message[:_ERROR_CHARS]}")
            if len(errors) == _FIRST_ERRORS:
                break
    except Unresolvable as error:
        return {"failure": "reference", "reference": str(error.ref)}
    return {"errors": errors}


_KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "ready": ready,
    "compare_math": compare_math,
    "check_schema": check_schema,
}


# ------------------------------------------------------------------- limits


def _bound_memory(size_bytes: int) -> None:
    try:
        import resource
    except ImportError:
        return  # Windows: only time is bounded there
    try:
        resource.setrlimit(resource.RLIMIT_AS, (size_bytes, size_bytes))
    except (ValueError, OSError):
        return  # macOS knows the limit and does not take it


def _die_after(seconds: float) -> None:
    """Ends this process then, should whoever asked be gone. 0: no longer."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


if __name__ == "__main__":
    main()
