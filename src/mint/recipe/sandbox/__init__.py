"""Running programs that a model has written, and grading them: see `Sandbox` and the graders.

Names load when first used: the guard's processes import this package too, and are to stay small.
"""

from typing import TYPE_CHECKING

from mint.recipe.late import late_names

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
    "CaseGrade": "grading",
    "FunctionCase": "grading",
    "Grade": "grading",
    "Isolation": "isolation",
    "Limits": "limits",
    "PYTHON": "sandbox",
    "ProgramCase": "grading",
    "Result": "limits",
    "Sandbox": "sandbox",
    "SandboxError": ".exceptions",
    "WeakIsolationWarning": "isolation",
    "grade_function": "grading",
    "grade_program": "grading",
    "same_text": "answers",
    "same_value": "answers",
}
"""Name -> the module of this package that has it; with a dot, of mint.recipe."""

__all__ = list(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = late_names(__name__, _NAMES)
