"""LoRA adapters: their memory, and the linears that add them to a frozen base.

An adapter is one flat float32 buffer. A of every target comes first, then B of every target, each
a view `[R, in]` or `[out, R]`. So pinning a version is one copy, an optimizer step one fused pass,
and a checkpoint a set of views.

Shapes: T packed tokens, R rank.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mint.core.lora import LoraSpec


@dataclass(frozen=True)
class Target:
    """One linear of the base model that an adapter may extend."""

    name: str
    """Module path in the base model, such as "model.layers.0.self_attn.q_proj"."""
    in_features: int
    out_features: int

    def is_trained(self, spec: LoraSpec) -> bool:
        if self.name == "lm_head":
            return spec.train_unembed
        return spec.train_attn if ".self_attn." in self.name else spec.train_mlp


@dataclass(frozen=True)
class Layout:
    """Where each target's A and B lie in an adapter's flat memory."""

    spec: LoraSpec
    targets: tuple[Target, ...]

    @classmethod
    def of(cls, spec: LoraSpec, targets: Iterable[Target]) -> "Layout":
        return cls(spec, tuple(t for t in targets if t.is_trained(spec)))

    @property
    def scale(self) -> float:
        return self.spec.alpha / self.spec.rank

    @cached_property
    def size(self) -> int:
        """Number of values."""
        return sum((t.in_features + t.out_features) * self.spec.rank for t in self.targets)

    def views(self, flat: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Each target's (A `[R, in]`, B `[out, R]`) as views of `flat`."""
        rank, at = self.spec.rank, 0
        a: dict[str, Tensor] = {}
        b: dict[str, Tensor] = {}
        for t in self.targets:
            a[t.name] = flat[at : at + rank * t.in_features].view(rank, t.in_features)
            at += rank * t.in_features
        for t in self.targets:
            b[t.name] = flat[at : at + t.out_features * rank].view(t.out_features, rank)
            at += t.out_features * rank
        return {name: (a[name], b[name]) for name in a}


@dataclass(eq=False)
class AdapterWeights:
    """One version of an adapter's weights, ready for a forward pass.

    Pinned versions are never written to; the one in training is written by its optimizer only.
    """

    layout: Layout
    flat: Tensor
    version: int = 0
    pairs: Mapping[str, tuple[Tensor, Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        self.pairs = self.layout.views(self.flat)

    @property
    def nbytes(self) -> int:
        return self.flat.numel() * self.flat.element_size()

    def pinned(self) -> "AdapterWeights":
        """A copy that later optimizer steps do not reach."""
        return AdapterWeights(self.layout, self.flat.detach().clone(), self.version)


class TrainedAdapter(AdapterWeights):
    """An adapter in training: its weights are leaves whose gradients lie in one flat buffer."""

    def __init__(self, layout: Layout, flat: Tensor, version: int = 0) -> None:
        super().__init__(layout, flat, version)
        self.flat_grad = torch.zeros_like(flat)
        grads = layout.views(self.flat_grad)
        for name, pair in self.pairs.items():
            for weight, grad in zip(pair, grads[name], strict=True):
                weight.requires_grad_(True)
                weight.grad = grad  # autograd adds into it in place

    @property
    def nbytes(self) -> int:
        return 2 * super().nbytes

    def clear_grad(self) -> None:
        self.flat_grad.zero_()


def trained_bytes(layout: Layout) -> int:
    """Memory of an adapter in training: weights, gradient and Adam's two moments, float32."""
    return 4 * 4 * layout.size


def initial_weights(layout: Layout, *, model_id: str, device: torch.device | str = "cpu") -> Tensor:
    """Flat memory of a new adapter: A uniform in +-1/sqrt(in), B zero (as Hu et al. 2021 start:
    the adapter adds nothing at first). Without a seed in the spec the model's id is the seed."""
    seed = layout.spec.seed
    if seed is None:
        seed = int.from_bytes(hashlib.sha256(model_id.encode()).digest()[:8], "little")
    generator = torch.Generator().manual_seed(seed % 2**63)
    flat = torch.zeros(layout.size)
    for a, _ in layout.views(flat).values():
        bound = 1 / math.sqrt(a.shape[1])
        a.uniform_(-bound, bound, generator=generator)
    return flat.to(device)


@dataclass(frozen=True)
class Rows:
    """A run of packed tokens that one adapter (or none: the base model) applies to."""

    start: int
    stop: int
    adapter: AdapterWeights | None


class AdapterContext:
    """Which adapter applies to which rows of the forward pass now running."""

    def __init__(self) -> None:
        self._rows: tuple[Rows, ...] = ()

    @contextmanager
    def rows(self, counts: Sequence[tuple[AdapterWeights | None, int]]) -> Iterator[None]:
        """Inside, packed tokens belong to these adapters: (adapter, how many), in order."""
        before, at = self._rows, 0
        runs: list[Rows] = []
        for adapter, count in counts:
            if runs and runs[-1].adapter is adapter:
                runs[-1] = Rows(runs[-1].start, at + count, adapter)
            else:
                runs.append(Rows(at, at + count, adapter))
            at += count
        self._rows = tuple(r for r in runs if r.adapter is not None)
        try:
            yield
        finally:
            self._rows = before

    def add(self, name: str, x_TI: Tensor, y_TO: Tensor) -> Tensor:
        """y + scale * (x A^T) B^T on every row whose adapter extends this linear."""
        for run in self._rows:
            assert run.adapter is not None
            pair = run.adapter.pairs.get(name)
            if pair is None:
                continue
            a_RI, b_OR = pair
            scale = run.adapter.layout.scale
            if run.start == 0 and run.stop == x_TI.shape[0]:
                u_TR = F.linear(x_TI.to(a_RI.dtype), a_RI)
                return _plus(y_TO, u_TR, b_OR, scale)
            rows = slice(run.start, run.stop)
            u_TR = F.linear(x_TI[rows].to(a_RI.dtype), a_RI)
            if torch.is_grad_enabled():
                y_TO = torch.cat(
                    [y_TO[: run.start], _plus(y_TO[rows], u_TR, b_OR, scale), y_TO[run.stop :]]
                )
            else:
                y_TO[rows] = _plus(y_TO[rows], u_TR, b_OR, scale)
        return y_TO


def _plus(y_TO: Tensor, u_TR: Tensor, b_OR: Tensor, scale: float) -> Tensor:
    if y_TO.dtype == u_TR.dtype:
        return torch.addmm(y_TO, u_TR, b_OR.t(), alpha=scale)
    return y_TO + (scale * F.linear(u_TR, b_OR)).to(y_TO.dtype)


class LoraLinear(nn.Module):
    """A frozen linear plus the adapters of the rows at hand. Input is flattened to 2-D first:
    a frozen weight with a non-contiguous 3-D input makes the kernels copy the weight per row."""

    def __init__(self, base: nn.Linear, name: str, context: AdapterContext) -> None:
        super().__init__()
        self.weight = base.weight
        self.bias = base.bias
        self.name = name
        self._context = context

    @property
    def target(self) -> Target:
        out_features, in_features = self.weight.shape
        return Target(self.name, in_features, out_features)

    def forward(self, x: Tensor) -> Tensor:
        x_TI = x.reshape(-1, x.shape[-1])
        y_TO = F.linear(x_TI, self.weight, self.bias)
        return self._context.add(self.name, x_TI, y_TO).view(*x.shape[:-1], -1)


def wrap_linears(module: nn.Module, context: AdapterContext) -> tuple[Target, ...]:
    """Replace every linear of a decoder by a LoraLinear, in place; returns them as targets."""
    found = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.Linear)]
    targets = []
    for name, linear in found:
        parent_name, _, leaf = name.rpartition(".")
        wrapped = LoraLinear(linear, name, context)
        setattr(module.get_submodule(parent_name), leaf, wrapped)
        targets.append(wrapped.target)
    return tuple(targets)
