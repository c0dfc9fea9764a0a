"""Running programs that a model has written, and grading them: see `Sandbox` and the graders."""

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
