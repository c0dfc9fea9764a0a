"""Direct reward optimisation: a quadratic pull towards the sampling policy."""

from torch import Tensor


def dro(logp_P: Tensor, sampled_logp_P: Tensor, advantage_P: Tensor, beta: float) -> Tensor:
    """-(p * A - beta / 2 * (p - q)^2) at each position.

    The quadratic term acts at A = 0 too. Where nothing shall be learnt (a prompt), give the
    model's own logprobs as q, as a forward pass returns them.

    Source: Richemond et al. 2024, arXiv:2405.19107, eq. 6, per token.
    """
    return -(logp_P * advantage_P - 0.5 * beta * (logp_P - sampled_logp_P) ** 2)
