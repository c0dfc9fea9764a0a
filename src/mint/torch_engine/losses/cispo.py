"""Policy gradient with a clipped, gradient-free importance weight."""

import torch
from torch import Tensor


def cispo(
    logp_P: Tensor, sampled_logp_P: Tensor, advantage_P: Tensor, low_P: Tensor, high_P: Tensor
) -> Tensor:
    """-sg(clip(r, low, high)) * A * p at each position: every token keeps a gradient.

    Source: MiniMax 2025, arXiv:2506.13585, eq. 4.
    """
    ratio_P = torch.exp(logp_P.detach() - sampled_logp_P)
    return -torch.clamp(ratio_P, low_P, high_P) * advantage_P * logp_P
