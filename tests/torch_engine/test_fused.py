"""Our norms and MLPs against transformers' own, forwards and backwards."""

import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from mint.torch_engine.fused import GatedMlp, RmsNorm, fuse


class _Mlp(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(8, 24, bias=False)
        self.up_proj = nn.Linear(8, 24, bias=False)
        self.down_proj = nn.Linear(24, 8, bias=False)
        self.act_fn = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class _ShiftedRMSNorm(LlamaRMSNorm):
    """A family whose weight counts from 1, as Gemma's does."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states) + hidden_states


def _layer(norm: nn.Module, mlp: nn.Module) -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"norm": norm, "mlp": mlp})


def _norm() -> LlamaRMSNorm:
    norm = LlamaRMSNorm(8, eps=1e-5)
    norm.weight = nn.Parameter(torch.rand(8) + 0.5)
    return norm


def test_value_and_gradient_are_those_of_the_module_replaced():
    norm, mlp = _norm(), _Mlp(nn.SiLU())
    theirs = _layer(norm, mlp).requires_grad_(False)
    x = torch.randn(2, 7, 8, requires_grad=True)
    weight = torch.randn(2, 7, 8)

    def run(layer: nn.ModuleDict) -> tuple[torch.Tensor, torch.Tensor]:
        y = layer["mlp"](layer["norm"](x) * 1.5)
        return y.detach(), torch.autograd.grad((y * weight).sum(), x)[0]

    expected = run(theirs)
    ours = _layer(RmsNorm(norm.weight, 1e-5), GatedMlp(mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    for found, wanted in zip(run(ours), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_computes_the_same_is_replaced():
    layer = _layer(_norm(), _Mlp(nn.SiLU()))
    fuse(layer)
    assert isinstance(layer["norm"], RmsNorm)
    assert isinstance(layer["mlp"], GatedMlp)


@pytest.mark.parametrize("act", [nn.GELU(), nn.ReLU()])
def test_another_formula_keeps_its_own_code(act):
    layer = _layer(_ShiftedRMSNorm(8, eps=1e-5), _Mlp(act))
    fuse(layer)
    assert isinstance(layer["norm"], _ShiftedRMSNorm)
    assert isinstance(layer["mlp"], _Mlp)


def test_a_norm_keeps_one_tensor_of_its_width():
    norm, kept = RmsNorm(torch.ones(64), 1e-5), []
    x = torch.randn(10, 64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        norm(x)
    assert sum(shape.numel() for shape in kept) < 1.2 * 10 * 64
