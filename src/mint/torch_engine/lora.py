"""LoRA adapters: their memory.

An adapter is one flat float32 buffer. A of every target comes first, then B of every target, each
a view `[R, in]` or `[out, R]`. So pinning a version is one copy, an optimizer step one fused pass,
and a checkpoint a set of views.

Shapes: I/O features in and out, R rank, S ranks of several linears together.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

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

    @cached_property
    def a_size(self) -> int:
        """Number of values of all A together: where the first B begins."""
        return sum(t.in_features for t in self.targets) * self.spec.rank

    def views(self, flat: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Each target's (A `[R, in]`, B `[out, R]`) as views of the last axis of `flat`; leading
        axes stay in front."""
        lead, rank, at = flat.shape[:-1], self.spec.rank, 0
        a: dict[str, Tensor] = {}
        b: dict[str, Tensor] = {}
        for t in self.targets:
            a[t.name] = flat[..., at : at + rank * t.in_features].view(*lead, rank, t.in_features)
            at += rank * t.in_features
        for t in self.targets:
            b[t.name] = flat[..., at : at + t.out_features * rank].view(*lead, t.out_features, rank)
            at += t.out_features * rank
        return {name: (a[name], b[name]) for name in a}


@dataclass(frozen=True, eq=False)
class Stack:
    """What an adapter adds to linears that read the same x: one product with all A, and one with
    each B.

    Attributes:
        a_SI: A of each linear, one below the other.
        a_grad_SI: where their gradients are summed; None for an adapter that is only read.
        bs: B `[O, R]` of each linear.
    """

    a_SI: Tensor
    a_grad_SI: Tensor | None
    bs: tuple[Tensor, ...]
    scale: float


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
        self._stacks: dict[tuple[str, ...], Stack | None] = {}

    @property
    def nbytes(self) -> int:
        return self.flat.numel() * self.flat.element_size()

    def stack(self, names: tuple[str, ...]) -> Stack | None:
        """What is added to these linears, neighbours in the layout; None where they are left as they
        are. Made once: gathering takes as long as a linear at one row."""
        if names not in self._stacks:
            self._stacks[names] = self._stacked(names) if names[0] in self.pairs else None
        return self._stacks[names]

    def _stacked(self, names: tuple[str, ...]) -> Stack:
        every_a, every_b = zip(*(self.pairs[name] for name in names), strict=True)
        grads = [a.grad for a in every_a if a.grad is not None]
        a_grad_SI = _one_matrix(grads) if grads else None
        return Stack(_one_matrix(every_a), a_grad_SI, every_b, self.layout.scale)

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


def _one_matrix(neighbours: Sequence[Tensor]) -> Tensor:
    """Matrices that follow each other in an adapter's memory as one `[S, I]`, without a copy."""
    first, rows = neighbours[0].detach(), 0
    for matrix in neighbours:
        assert matrix.storage_offset() == first.storage_offset() + rows * first.shape[1]
        rows += len(matrix)
    return first.as_strided((rows, first.shape[1]), first.stride())


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
