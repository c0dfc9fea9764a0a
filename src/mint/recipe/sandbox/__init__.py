"""Running programs that a model has written, and grading them: see `Sandbox` and the graders.

Names load when first used: the guard's processes import this package too, and are to stay small.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mint.recipe.exceptions import SandboxError as SandboxError
    from mint.recipe.sandbox.answers import same_text as same_text
    from mint.recipe.sandbox.answers import same_value as same_value
    from mint.recipe.sandbox.grading import CaseGrade as CaseGrade
    from mint.recipe.sandbox.grading import FunctionCase as FunctionCase
    from mint.recipe.sandbox.grading import Grade as Grade
    from mint.recipe.sandbox.grading import ProgramCase as ProgramCase
    from mint.recipe.sandbox.grading import grade_function as grade_function
    from mint.recipe.sandbox.grading import grade_program as grade_program
    from mint.recipe.sandbox.isolation import Isolation as Isolation
    from mint.recipe.sandbox.isolation import WeakIsolationWarning as WeakIsolationWarning
    from mint.recipe.sandbox.limits import Limits as Limits
    from mint.recipe.sandbox.limits import Result as Result
    from mint.recipe.sandbox.sandbox import PYTHON as PYTHON
    from mint.recipe.sandbox.sandbox import Sandbox as Sandbox

_NAMES = {
    "CaseGrade": "sandbox.grading",
    "FunctionCase": "sandbox.grading",
    "Grade": "sandbox.grading",
    "Isolation": "sandbox.isolation",
    "Limits": "sandbox.limits",
    "PYTHON": "sandbox.sandbox",
    "ProgramCase": "sandbox.grading",
    "Result": "sandbox.limits",
    "Sandbox": "sandbox.sandbox",
    "SandboxError": "exceptions",
    "WeakIsolationWarning": "sandbox.isolation",
    "grade_function": "sandbox.grading",
    "grade_program": "sandbox.grading",
    "same_text": "sandbox.answers",
    "same_value": "sandbox.answers",
}
"""Name -> the module of mint.recipe that has it."""

__all__ = list(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"mint.recipe.{_NAMES[name]}"), name)
    globals()[name] = value  # found once: the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
