"""Policy gradient with an importance ratio."""

import torch
from torch import Tensor


def importance_sampling(logp_P: Tensor, sampled_logp_P: Tensor, advantage_P: Tensor) -> Tensor:
    """-exp(p - q) * A at each position: unbiased for data sampled under other weights.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 6 (unclipped surrogate).
    """
    return -torch.exp(logp_P - sampled_logp_P) * advantage_P
