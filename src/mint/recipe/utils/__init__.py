"""Doors for code that comes from elsewhere: logging, learning-rate schedules, list helpers."""

from typing import TYPE_CHECKING

from mint.recipe.late import late_names

if TYPE_CHECKING:
    from mint.recipe.utils import lr_scheduling as lr_scheduling
    from mint.recipe.utils import misc_utils as misc_utils
    from mint.recipe.utils import ml_log as ml_log

__all__ = ["lr_scheduling", "misc_utils", "ml_log"]

__getattr__, __dir__ = late_names(__name__, modules=__all__)
