"""check_sum: whether a weighted sum of checkpoints can be asked for."""

import math
from collections.abc import Sequence

from mint.core.errors import UserError

MAX_SOURCES = 64
"""Of one sum: all of their files are open together."""


def check_sum(source_paths: Sequence[str], coefficients: Sequence[float]) -> None:
    """Refuse a sum without terms, with a term that lacks its number, or with one that is not finite.

    Raises:
        UserError: names the field.
    """
    if not 1 <= len(source_paths) <= MAX_SOURCES:
        raise UserError(
            f"source_paths has {len(source_paths)} checkpoints; give 1 to {MAX_SOURCES}."
        )
    if len(coefficients) != len(source_paths):
        raise UserError(
            f"coefficients has {len(coefficients)} numbers for {len(source_paths)} source_paths. "
            "Give one for each."
        )
    for i, coefficient in enumerate(coefficients):
        if not math.isfinite(coefficient):
            raise UserError(f"coefficients[{i}]={coefficient}: give a finite number.")
