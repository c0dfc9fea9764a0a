"""Adam over an adapter's flat memory."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mint.core.optim import AdamParams


@dataclass(eq=False)
class AdamState:
    """First and second moments of one adapter, float32, and how many steps it has made."""

    exp_avg: Tensor
    exp_avg_sq: Tensor
    steps: int = 0

    @classmethod
    def zeros_like(cls, flat: Tensor) -> "AdamState":
        return cls(torch.zeros_like(flat), torch.zeros_like(flat))

    @property
    def nbytes(self) -> int:
        return 2 * self.exp_avg.numel() * self.exp_avg.element_size()


@torch.no_grad()
def adam_step(weights: Tensor, grad: Tensor, state: AdamState, params: AdamParams) -> float:
    """One step in place on flat memory, as torch.optim.AdamW does it; returns the L2 norm of the
    gradient before clipping.

        w <- w - lr * weight_decay * w
        m <- beta1 m + (1 - beta1) g;   v <- beta2 v + (1 - beta2) g^2
        w <- w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Source: Kingma & Ba 2015, arXiv:1412.6980, algorithm 1; Loshchilov & Hutter 2019, algorithm 2.
    """
    norm = float(torch.linalg.vector_norm(grad))
    if params.grad_clip_norm and norm > params.grad_clip_norm:
        grad = grad * (params.grad_clip_norm / (norm + 1e-6))
    state.steps += 1
    if params.weight_decay:
        weights.mul_(1 - params.learning_rate * params.weight_decay)
    state.exp_avg.lerp_(grad, 1 - params.beta1)
    state.exp_avg_sq.mul_(params.beta2).addcmul_(grad, grad, value=1 - params.beta2)
    root = math.sqrt(1 - params.beta2**state.steps)
    denominator = state.exp_avg_sq.sqrt().div_(root).add_(params.eps)
    weights.addcdiv_(
        state.exp_avg, denominator, value=-params.learning_rate / (1 - params.beta1**state.steps)
    )
    return norm
