"""Sparse tensors to dense ones, with a bound on what they may unpack to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mint.core.errors import LossInputError

MAX_DENSE_VALUES = 1 << 26
"""Cells that the sparse tensors of one request may unpack to, together: 512 MiB of int64. A few
bytes can claim any shape, so the bound is on the claim."""


@dataclass
class DenseBudget:
    """What is left of `MAX_DENSE_VALUES` for one request."""

    values: int = MAX_DENSE_VALUES

    def take(self, values: int, where: str) -> None:
        if values > self.values:
            raise LossInputError(
                f"{where} unpacks to {values} values; all sparse tensors of a request together may "
                f"hold {MAX_DENSE_VALUES}. Send fewer datums at a time."
            )
        self.values -= values


def sparse_to_dense(
    values: NDArray[Any],
    crow: NDArray[np.int64],
    col: NDArray[np.int64],
    shape: Sequence[int],
    where: str,
    budget: DenseBudget,
) -> NDArray[Any]:
    """A CSR matrix as a dense one of the same dtype; absent cells are 0.

    Args:
        values: the stored values, row after row.
        crow: row i holds the values from crow[i] up to crow[i + 1]; `[rows + 1]`.
        col: the column of each stored value.
        shape: `[rows, columns]`.

    Raises:
        LossInputError: the parts contradict each other, or the budget is used up.
    """
    rows, columns = check_csr(values, crow, col, shape, where)
    budget.take(rows * columns, where)
    dense = np.zeros((rows, columns), dtype=values.dtype)
    dense[np.repeat(np.arange(rows), np.diff(crow)), col] = values
    return dense


def check_csr(
    values: NDArray[Any],
    crow: NDArray[np.int64],
    col: NDArray[np.int64],
    shape: Sequence[int],
    where: str,
) -> tuple[int, int]:
    """The rows and columns of a CSR matrix, if its parts fit each other.

    Raises:
        LossInputError: they contradict each other.
    """
    if len(shape) != 2 or shape[0] < 0 or shape[1] < 1:
        raise LossInputError(
            f"{where} is sparse with shape {list(shape)}; that takes [n, k] with k of 1 or more."
        )
    rows, columns = (int(size) for size in shape)
    if (
        crow.size != rows + 1
        or crow[0] != 0
        or crow[-1] != values.size
        or (np.diff(crow) < 0).any()
    ):
        raise LossInputError(
            f"{where}: crow_indices must be {rows + 1} numbers that rise from 0 to the "
            f"{values.size} stored values."
        )
    if col.size != values.size or ((col < 0) | (col >= columns)).any():
        raise LossInputError(
            f"{where}: col_indices must give one column from 0 to {columns - 1} for each of the "
            f"{values.size} stored values."
        )
    return rows, columns
