"""Our attention module against transformers' own, forwards and backwards."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.torch_engine.conftest import load_decoder, load_plain
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

from mint.torch_engine import attention
from mint.torch_engine.fused import fuse
from mint.torch_engine.models.tiny import build_tiny
from mint.torch_engine.rotary_attention import RotaryAttention, rotated


@pytest.mark.parametrize("halves", ["alike", "of their own"])
def test_value_and_gradient_are_those_of_five_elementary_operations(halves):
    torch.manual_seed(0)
    x_1THD = torch.randn(1, 7, 3, 8, requires_grad=True)
    weight = torch.randn(1, 7, 3, 8)
    angles = torch.randn(1, 7, 4).repeat(1, 1, 2) if halves == "alike" else torch.randn(1, 7, 8)
    cos, sin = 1.3 * angles.cos(), 1.3 * angles.sin()  # a factor, as YaRN's tables have

    ours = rotated(x_1THD, cos.unsqueeze(2), sin.unsqueeze(2))
    theirs, _ = apply_rotary_pos_emb(x_1THD, x_1THD, cos, sin, unsqueeze_dim=2)

    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    [found], [expected] = (torch.autograd.grad((y * weight).sum(), x_1THD) for y in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_every_layer_of_the_families_we_know_is_replaced(family: Any, tmp_path: Path):
    folder = build_tiny(tmp_path, family=family)
    decoder, plain = load_decoder(folder), load_plain(folder)
    ours = [m for m in decoder._module.modules() if isinstance(m, RotaryAttention)]
    assert len(ours) == decoder.layers
    names = [n for n, m in plain.named_modules() if isinstance(m, torch.nn.Linear)]
    assert sorted(target.name for target in decoder.targets) == sorted(names)


class _ScaledValues(Qwen3Attention):
    """A family with another formula."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        out, weights = super().forward(*args, **kwargs)
        return out * 2, weights


def _layer(kind: type[Qwen3Attention]) -> torch.nn.ModuleDict:
    attention.register()
    config = Qwen3Config(
        hidden_size=16,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_hidden_layers=1,
    )
    config._attn_implementation = attention.ATTENTION
    return torch.nn.ModuleDict({"self_attn": kind(config, 0).eval()})


def test_what_computes_the_same_is_replaced_and_another_formula_keeps_its_own_code():
    same, another = _layer(Qwen3Attention), _layer(_ScaledValues)
    fuse(same)
    fuse(another)
    assert isinstance(same["self_attn"], RotaryAttention)
    assert isinstance(another["self_attn"], _ScaledValues)


def test_a_norm_of_all_heads_together_keeps_its_own_code():
    layer = _layer(Qwen3Attention)
    norm = layer["self_attn"].get_submodule("q_norm")
    norm.register_parameter("weight", torch.nn.Parameter(torch.ones(4 * 8)))
    fuse(layer)
    assert isinstance(layer["self_attn"], Qwen3Attention)
