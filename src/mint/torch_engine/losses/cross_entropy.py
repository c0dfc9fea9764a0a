"""Weighted negative log-likelihood."""

from torch import Tensor


def cross_entropy(logp_P: Tensor, weight_P: Tensor) -> Tensor:
    """-w * p at each position.

    Nothing is normalised, weights may be negative: a client's own loss arrives here as
    w = -d(loss)/d(p), and its gradient has to come out exactly.
    """
    return -weight_P * logp_P
