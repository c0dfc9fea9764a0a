"""Whether a value can be meant as a setting."""

import math
from typing import Any


def is_whole(value: Any, lowest: int) -> bool:
    """Whether it is a whole number, `lowest` or more; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def is_positive(value: Any) -> bool:
    """Whether it is a finite number above 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf
