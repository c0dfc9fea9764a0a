"""JSON's numbers, for text that anybody may have written. Python's reader takes more than its standard says.

json.loads(text, parse_constant=refused_constant, parse_float=finite_float)
"""

import math
from typing import NoReturn


def refused_constant(name: str) -> NoReturn:
    """
    Raises:
        ValueError: NaN and Infinity, which only Python takes for JSON.
    """
    raise ValueError(f"{name} is no JSON number")


def finite_float(digits: str) -> float:
    """
    Raises:
        ValueError: the number is beyond every float, and would be read as an infinity.
    """
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is beyond every float")
    return number
