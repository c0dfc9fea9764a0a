"""Our fused Adam is torch's."""

import pytest
import torch

from mint.core.errors import ConfigError
from mint.core.optim import AdamParams
from mint.torch_engine.optim import AdamState, adam_step


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_steps_equal_torchs_adamw(weight_decay, clip):
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(200, generator=generator)
    theirs = ours.clone().requires_grad_(True)
    params = AdamParams(
        learning_rate=3e-2, beta1=0.8, beta2=0.99, eps=1e-8, weight_decay=weight_decay,
        grad_clip_norm=clip,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(
        [theirs], lr=3e-2, betas=(0.8, 0.99), eps=1e-8, weight_decay=weight_decay
    )
    state = AdamState.zeros_like(ours)

    for _ in range(7):
        grad = torch.randn(200, generator=generator)
        theirs.grad = grad.clone()
        norm = adam_step(ours, grad, state, params)
        assert norm == pytest.approx(float(grad.norm()), rel=1e-6)
        if clip:
            torch.nn.utils.clip_grad_norm_([theirs], clip)
        optimizer.step()

    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-7)


def test_plain_adam_equals_torchs_adam_with_upstreams_defaults():
    ours = torch.linspace(-1, 1, 50)
    theirs = ours.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([theirs], lr=1e-4, betas=(0.9, 0.95), eps=1e-12)
    state = AdamState.zeros_like(ours)
    for n in range(1, 6):
        grad = torch.sin(torch.arange(50.0) * n)
        theirs.grad = grad.clone()
        optimizer.step()
        adam_step(ours, grad, state, AdamParams())
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("field", ["learning_rate", "beta1", "beta2", "eps"])
def test_numbers_out_of_range_are_refused_by_name(field):
    with pytest.raises(ConfigError, match=field):
        AdamParams(**{field: -1.0})
