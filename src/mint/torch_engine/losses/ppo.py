"""Clipped policy gradient."""

import torch
from torch import Tensor


def ppo(
    logp_P: Tensor, sampled_logp_P: Tensor, advantage_P: Tensor, low_P: Tensor, high_P: Tensor
) -> Tensor:
    """-min(r * A, clip(r, low, high) * A) at each position, r = exp(p - q).

    Args:
        low_P, high_P: bounds of the ratio itself, so (0.8, 1.2) is the paper's epsilon = 0.2.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7.
    """
    ratio_P = torch.exp(logp_P - sampled_logp_P)
    clipped_P = torch.clamp(ratio_P, low_P, high_P)
    return -torch.minimum(ratio_P * advantage_P, clipped_P * advantage_P)
