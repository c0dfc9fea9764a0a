"""A linear with adapters: values and gradients against plain autograd, in every form it has."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from mint.core.lora import LoraSpec
from mint.torch_engine import frozen
from mint.torch_engine.adapter_bank import AdapterBank
from mint.torch_engine.adapter_rows import BATCHED_ROWS, AdapterContext
from mint.torch_engine.frozen import FrozenMatrix
from mint.torch_engine.linears import LoraLinear, products
from mint.torch_engine.lora import AdapterWeights, Layout, Target, TrainedAdapter

IN, OUT, NAME = 12, 20, "model.layers.0.self_attn.q_proj"
SIZES = (("q", 20), ("k", 8), ("v", 8))
TARGETS = (Target(NAME, IN, OUT), Target("model.layers.0.mlp.up_proj", IN, 8))


def spec(rank: int = 4, alpha: float = 32.0, **train: bool) -> LoraSpec:
    return LoraSpec(rank=rank, alpha=alpha, **train)


def flat_of(layout: Layout, seed: int) -> Tensor:
    return torch.randn(layout.size, generator=torch.Generator().manual_seed(seed)) * 0.3


def pinned(seed: int, rank: int = 4, **train: bool) -> AdapterWeights:
    layout = Layout.of(spec(rank, alpha=8.0 * (seed + 1), **train), TARGETS)
    return AdapterWeights(layout, flat_of(layout, seed))


def trained(seed: int, rank: int = 4) -> TrainedAdapter:
    layout = Layout.of(spec(rank), TARGETS)
    return TrainedAdapter(layout, flat_of(layout, seed))


@pytest.fixture(params=["packed", "plain"])
def base(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> nn.Linear:
    """A base linear, where its weight can be prepacked and where not."""
    if request.param == "plain":
        monkeypatch.setattr(frozen, "_can_pack", lambda dtype: False)
    torch.manual_seed(0)
    return nn.Linear(IN, OUT).requires_grad_(False)


def lora_linear(base: nn.Linear, context: AdapterContext) -> LoraLinear:
    return LoraLinear(frozen.matrices_of([base], keep_plain=False)[0], NAME, context)


def gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad.double()


def by_hand(base: nn.Linear, x: Tensor, counts: Sequence[tuple[AdapterWeights | None, int]]):
    """y of plain autograd, and the leaves whose gradients it gives."""
    rows, leaves, at = [], [], 0
    for adapter, count in counts:
        part = x[at : at + count].double()
        y = part @ base.weight.double().T + base.bias.double()
        if adapter is not None and NAME in adapter.pairs:
            a, b = (w.detach().double().requires_grad_() for w in adapter.pairs[NAME])
            y = y + adapter.layout.scale * (part @ a.T) @ b.T
            leaves.append((adapter, a, b))
        rows.append(y)
        at += count
    return torch.cat(rows), leaves


def test_gradients_of_several_adapters_are_those_of_autograd(base):
    context = AdapterContext()
    linear = lora_linear(base, context)
    counts = [(trained(0), 5), (None, 3), (trained(1, rank=2), 7)]
    x = torch.randn(15, IN, requires_grad=True)
    g = torch.randn(15, OUT)
    with context.rows(counts):
        y = linear(x)
        y.backward(g)
    expected, leaves = by_hand(base, wide := x.detach().double().requires_grad_(), counts)
    expected.backward(g.double())
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient(x), gradient(wide), rtol=1e-5, atol=1e-5)
    for adapter, a, b in leaves:
        for ours, theirs in zip(adapter.pairs[NAME], (a, b), strict=True):
            torch.testing.assert_close(gradient(ours), gradient(theirs), rtol=1e-5, atol=1e-5)
        assert adapter.flat_grad.count_nonzero() == a.numel() + b.numel()  # and nothing else


@pytest.mark.parametrize("bias", [True, False])
def test_linears_that_read_one_x_give_what_they_give_one_by_one(bias):
    """Values, the sum of their gradients of x, and each adapter's own; ranks mixed, rows bare."""
    torch.manual_seed(0)
    targets = tuple(Target(f"model.layers.0.self_attn.{n}_proj", IN, o) for n, o in SIZES)
    context = AdapterContext()
    plain = [nn.Linear(IN, t.out_features, bias=bias) for t in targets]
    linears = [
        LoraLinear(matrix, t.name, context)
        for matrix, t in zip(frozen.matrices_of(plain, keep_plain=False), targets, strict=True)
    ]
    x = torch.randn(2, 6, IN)
    gs = [torch.randn(2, 6, t.out_features) for t in targets]

    def run(together: bool) -> tuple[list[Tensor], ...]:
        adapters = [
            TrainedAdapter(layout := Layout.of(spec(rank), targets), flat_of(layout, rank))
            for rank in (4, 3)
        ]
        leaf = x.clone().requires_grad_()
        with context.rows([(adapters[0], 5), (None, 1), (adapters[1], 6)]):
            ys = products(leaf, *linears) if together else [linear(leaf) for linear in linears]
            torch.autograd.backward(ys, gs)
        assert leaf.grad is not None
        return [y.detach() for y in ys], [leaf.grad, *(a.flat_grad for a in adapters)]

    for found, expected in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_the_first_layer_needs_no_gradient_of_its_input(base):
    context = AdapterContext()
    linear, adapter = lora_linear(base, context), trained(0)
    with context.rows([(adapter, 4)]):
        linear(torch.randn(4, IN)).sum().backward()
    assert gradient(adapter.pairs[NAME][1]).abs().sum() > 0


def test_a_pinned_adapter_is_only_read(base):
    context = AdapterContext()
    linear, fixed = lora_linear(base, context), pinned(0)
    x = torch.randn(4, IN, requires_grad=True)
    with context.rows([(fixed, 4)]):
        linear(x).sum().backward()
    wide = x.detach().double().requires_grad_()
    by_hand(base, wide, [(fixed, 4)])[0].sum().backward()
    torch.testing.assert_close(gradient(x), gradient(wide), rtol=1e-5, atol=1e-5)


def test_short_rows_of_many_adapters_are_batched_and_equal(base):
    """Ranks, scales and sets of linears mixed; some rows bare; one adapter with many rows."""
    context = AdapterContext()
    linear = lora_linear(base, context)
    counts = [
        (pinned(0), 3), (pinned(1, rank=2), 1), (None, 2), (pinned(2, train_attn=False), 2),
        (pinned(3, rank=7), 5), (pinned(4), BATCHED_ROWS + 1),
    ]  # fmt: skip
    x = torch.randn(sum(count for _, count in counts), IN)
    expected, _ = by_hand(base, x, counts)
    for _ in range(2):  # the second time they are in the bank already
        with torch.no_grad(), context.rows(counts):
            assert len(context.pieces((NAME,))) == 1  # the long one
            torch.testing.assert_close(linear(x).double(), expected, rtol=1e-5, atol=1e-5)


def test_an_adapter_in_training_is_never_read_from_the_bank(base):
    context = AdapterContext()
    linear = lora_linear(base, context)
    moving, x = trained(0), torch.randn(3, IN)
    counts = [(moving, 1), (pinned(1), 1), (pinned(2), 1)]
    for _ in range(2):
        with torch.no_grad(), context.rows(counts):
            found = linear(x)
        torch.testing.assert_close(
            found.double(), by_hand(base, x, counts)[0], atol=1e-5, rtol=1e-5
        )
        with torch.no_grad():
            moving.flat.mul_(2)


def test_the_bank_keeps_who_stays_and_forgets_who_left():
    bank, adapters = AdapterBank(torch.device("cpu")), [pinned(n) for n in range(6)]

    def check(chosen: list[AdapterWeights]) -> None:
        slots = bank.hold(chosen)
        a_NRI, b_NOR = bank.pair(NAME) or pytest.fail("no adapter extends it")
        for adapter, slot in zip(chosen, slots, strict=True):
            a, b = adapter.pairs[NAME]
            rank = adapter.layout.spec.rank
            assert torch.equal(a_NRI[slot, :rank], a)
            assert not a_NRI[slot, rank:].any()
            assert torch.allclose(b_NOR[slot, :, :rank], b * adapter.layout.scale)

    check(adapters[:4])
    check(adapters[1:4])
    assert bank.used == 4  # one idle slot is cheaper than moving the others
    check(adapters[3:4])
    assert bank.used == 1
    check(adapters[2:6])
    assert bank.used == 4
    check([*adapters[4:6], pinned(9, rank=11)])


def test_a_packed_matrix_agrees_with_the_plain_one():
    weight, x = torch.randn(OUT, IN), torch.randn(7, IN)
    matrix = FrozenMatrix(weight, None, keep_plain=False)
    torch.testing.assert_close(matrix.product(x), x @ weight.T, rtol=1e-5, atol=1e-5)
    g = torch.randn(7, OUT)
    torch.testing.assert_close(matrix.back(g), g @ weight, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(matrix.back(g, x.clone()), x + g @ weight, rtol=1e-5, atol=1e-5)
    if frozen._can_pack(torch.float32):
        assert matrix.nbytes == 2 * weight.nbytes  # both ways packed, the plain one gone


def test_weights_packed_as_one_are_one_product_and_each_its_own_way_back(monkeypatch):
    torch.manual_seed(0)
    plain = [nn.Linear(IN, out, bias=False).requires_grad_(False) for _, out in SIZES]
    matrices, x = frozen.matrices_of(plain, keep_plain=False), torch.randn(7, IN)
    if frozen._can_pack(torch.float32):
        multiplied = []
        multiply = frozen._multiply
        monkeypatch.setattr(frozen, "_multiply", lambda *a: (multiplied.append(1), multiply(*a))[1])
        frozen.products(x, matrices)
        assert multiplied == [1]
    for found, matrix, linear in zip(frozen.products(x, matrices), matrices, plain, strict=True):
        torch.testing.assert_close(found, linear(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(matrix.product(x), linear(x), rtol=1e-5, atol=1e-5)
        g = torch.randn(7, matrix.out_features)
        torch.testing.assert_close(matrix.back(g), g @ linear.weight, rtol=1e-5, atol=1e-5)
    some = frozen.products(x, matrices[1:])  # not all that were packed together
    torch.testing.assert_close(some[1], plain[2](x), rtol=1e-5, atol=1e-5)
