"""Every plan gives the attention that the paths of the tree ask for, forward and backward."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tests.torch_engine.test_prefix_tree import joined, tokens, tries

from mint.torch_engine.packing import lay_out, pack
from mint.torch_engine.prefix_tree import prefix_tree
from mint.torch_engine.tree_attention import (
    MAX_BLOCK,
    FlexTreePlan,
    MaskedTreePlan,
    SlicedTreePlan,
    plan_for,
)  # fmt: skip

H, K, D = 6, 2, 16
SCALE = 0.2
CPU = torch.device("cpu")


def layout_of(inputs):
    return lay_out(prefix_tree(inputs).nodes())


def drawn(layout, dtype=torch.float64, seed=0, device=CPU):
    """q, k, v as a model hands them over, `[heads, T, D]` views of `[T, heads, D]`, and d(out)."""
    generator = torch.Generator().manual_seed(seed)

    def one(heads):
        x = torch.randn(layout.tokens, heads, D, generator=generator, dtype=torch.float64) * 2
        return x.to(device, dtype)

    leaves = [one(heads).requires_grad_(True) for heads in (H, K, K)]
    return leaves, one(H)


def by_definition(layout, q_THD, k_TKD, v_TKD):
    k, v = (x.repeat_interleave(H // K, dim=1) for x in (k_TKD, v_TKD))
    scores_HTT = SCALE * torch.einsum("qhd,khd->hqk", q_THD, k)
    hidden = ~torch.from_numpy(layout.visible(0, layout.tokens)).to(q_THD.device)
    weights_HTT = scores_HTT.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights_HTT, v)


def by_plan(plan, q_THD, k_TKD, v_TKD):
    return plan.attend(0, *(x.transpose(0, 1) for x in (q_THD, k_TKD, v_TKD)), SCALE)


def outcome(attend, leaves, d_out):
    out = attend(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, d_out)]


def assert_exact(plan, layout, tolerance=1e-12, device=CPU, dtype=torch.float64):
    leaves, d_out = drawn(layout, dtype, device=device)
    ours = outcome(lambda *x: by_plan(plan, *x), leaves, d_out)
    theirs = outcome(lambda *x: by_definition(layout, *x), leaves, d_out)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= tolerance * (1 + b.norm())


def long_and_short():
    """Three levels; nodes on both sides of the size up to which they share a call."""
    rng = np.random.default_rng(0)

    def some(n):
        return rng.integers(0, 99, n).astype(np.int32)

    system, turn = some(20), some(70)
    questions = [some(n) for n in (12, 66)]
    found = [some(3), some(66), some(33), some(33)]
    for question in questions:
        found += [joined(system, question, some(n)) for n in (1, 5, 9, 40)]
        found += [joined(system, question, turn, some(n)) for n in (4, 70)]
    return found


@given(tries)
def test_a_token_sees_its_own_path_and_nothing_else(inputs):
    packed = pack(prefix_tree(inputs), inputs)
    layout = layout_of(inputs)
    visible = layout.visible(0, layout.tokens)
    assert visible.sum(axis=1).tolist() == (packed.positions_T + 1).tolist()
    for rows in packed.rows.values():
        np.testing.assert_array_equal(visible[np.ix_(rows, rows)], np.tri(len(rows), dtype=bool))


@settings(max_examples=40, deadline=None)
@given(tries)
def test_slices_are_exact_on_any_tree(inputs):
    layout = layout_of(inputs)
    assert_exact(SlicedTreePlan.of(layout), layout)


def test_slices_are_exact_over_several_levels_of_long_and_short_nodes():
    layout = layout_of(long_and_short())
    plan = SlicedTreePlan.of(layout)
    assert {block.bias_MM is None for block in plan.blocks} == {True, False}
    assert len(plan.readings) >= 4
    assert_exact(plan, layout)


def test_the_mask_of_other_devices_is_exact():
    layout = layout_of(long_and_short())
    assert_exact(MaskedTreePlan.of(layout, CPU), layout)


def test_bfloat16_slices_are_as_close_as_bfloat16_allows():
    layout = layout_of(long_and_short())
    plan = SlicedTreePlan.of(layout)
    leaves, d_out = drawn(layout, torch.bfloat16)
    ours = outcome(lambda *x: by_plan(plan, *x), leaves, d_out)
    doubles = [x.detach().double().requires_grad_(True) for x in leaves]
    theirs = outcome(lambda *x: by_definition(layout, *x), doubles, d_out.double())
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == torch.bfloat16
        assert (a.double() - b).norm() <= 0.01 * b.norm()


def test_slices_cover_every_row_once_and_short_nodes_share_a_call():
    prompt = np.arange(20)
    inputs = [joined(prompt, [100 + i] * 4) for i in range(6)]
    layout = layout_of([*inputs, np.arange(200, 300), np.arange(300, 400)])
    plan = SlicedTreePlan.of(layout)
    assert [(block.start, block.stop) for block in plan.blocks] == [(0, 44), (44, 144), (144, 244)]
    assert plan.readings == ()
    assert all(b.stop - b.start <= MAX_BLOCK for b in plan.blocks if b.bias_MM is not None)


def test_a_cpu_gets_slices():
    assert isinstance(plan_for(layout_of([tokens(1, 2)]), CPU), SlicedTreePlan)


def test_flex_attention_sees_what_slices_see():
    layout = layout_of(long_and_short())
    leaves = [x.detach() for x in drawn(layout, torch.float32)[0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks to be compiled; that takes long
        flex = by_plan(FlexTreePlan.of(layout, CPU), *leaves)
        slices = by_plan(SlicedTreePlan.of(layout), *leaves)
    torch.testing.assert_close(flex, slices, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("extra", [1, 60])
def test_flex_attention_is_exact_on_cuda(extra):
    """Two sizes, since every micro-batch has another."""
    layout = layout_of([*long_and_short(), np.arange(200, 200 + extra)])
    cuda = torch.device("cuda")
    plan = plan_for(layout, cuda)
    assert isinstance(plan, FlexTreePlan)
    assert_exact(plan, layout, tolerance=1e-4, device=cuda, dtype=torch.float32)
