"""Group sequence policy optimisation, in its token form."""

import torch
from torch import Tensor


def gspo(
    logp_P: Tensor,
    sampled_logp_P: Tensor,
    advantage_P: Tensor,
    datum_P: Tensor,
    low_P: Tensor,
    high_P: Tensor,
) -> Tensor:
    """-min(s * A, clip(s, low, high) * A) at each position, with the sequence's ratio

        s_t = sg(exp(mean over the sequence of (p - q))) * exp(p_t - sg(p_t))

    A sequence is the positions of one datum with A != 0. The paper divides a sequence's sum by
    its length; like every loss here this one is a plain sum, so divide through A if you want that.

    Args:
        datum_P: int64, which datum a position belongs to.

    Source: Zheng et al. 2025, arXiv:2507.18071, eq. 7 for s, eq. 13-14 for the token form.
    """
    inside_P = (advantage_P != 0).to(logp_P.dtype)
    count = int(datum_P.max()) + 1 if datum_P.numel() else 0
    zeros = torch.zeros(count, dtype=logp_P.dtype, device=logp_P.device)
    gap_P = (logp_P.detach() - sampled_logp_P) * inside_P
    length = zeros.index_add(0, datum_P, inside_P).clamp(min=1)
    ratio = torch.exp(zeros.index_add(0, datum_P, gap_P) / length)
    ratio_P = ratio[datum_P] * torch.exp(logp_P - logp_P.detach())
    clipped_P = torch.clamp(ratio_P, low_P, high_P)
    return -torch.minimum(ratio_P * advantage_P, clipped_P * advantage_P)
