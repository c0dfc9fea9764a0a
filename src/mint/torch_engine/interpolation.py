"""A weighted sum of adapters, as one adapter that computes exactly that.

What an adapter adds to a weight is dW = (alpha / r) B A. The sum c_1 dW_1 + c_2 dW_2 + … is wanted,
and averaging A and B by themselves does not give it, not even between adapters of one shape and
one origin: B_1 A_2 would come in. Two ways that are exact are taken:

- Concatenation. The A are put below one another, the B side by side, each B scaled by its term's
  coefficient. The rank is the sum of the ranks (of those terms that extend the same linear).
- Where that exceeds what a weight can have, min(in, out), or what we serve, MAX_RANK: the rank that
  the sum really has, from an SVD of dW itself or, where less is stacked than the weight could have,
  of the small core between QRs of both stacks. Done in float64; what is cut off is below 1e-12 of
  the largest singular value.

Linear by linear, from files that are mapped: beside the result there is one linear's float64 at a
time. What that takes is known from the shapes and asked for first.

Shapes: R rank of a sum as it is written, K sum of the ranks, I inputs, O outputs of a linear.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from mint.core.errors import CapacityError, UserError
from mint.core.interpolation import check_sum
from mint.core.lora import MAX_RANK, LoraSpec
from mint.core.operations import InterpolateCheckpoints, Interpolated
from mint.torch_engine import checkpoint
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.lora import AdapterWeights, Layout, Target, initial_weights

_NOISE = 1e-12
"""Singular values below this share of the largest are rounding: float64 leaves about 1e-15."""

Factors = tuple[Tensor, Tensor]
"""(A `[K, I]`, B `[O, K]`), float64 unless narrowed; dW = B A."""


class Source(Protocol):
    """An adapter that is read only: AdapterWeights, or a checkpoint's."""

    @property
    def layout(self) -> Layout: ...
    @property
    def pairs(self) -> Mapping[str, tuple[Tensor, Tensor]]: ...


@dataclass(frozen=True, eq=False)
class Saved:
    """A checkpoint as a Source: each linear is read from its file when it is asked for."""

    layout: Layout
    pairs: Mapping[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Term:
    """One adapter and what it counts for."""

    coefficient: float
    weights: Source


def interpolate(
    operation: InterpolateCheckpoints,
    decoder: Decoder,
    sources: Sequence[Path],
    folder: Path,
    free_bytes: Callable[[int], int],
) -> Interpolated:
    """Write the weighted sum of the checkpoints in `sources` as a checkpoint into `folder`.

    It has no optimizer state: Adam's moments of different runs have no meaningful sum.

    Args:
        free_bytes: memory that may be taken now, told how much is wanted.

    Raises:
        UserError: a coefficient is missing or not finite, a checkpoint is of another base model,
            the sum overflows float32, or its true rank exceeds what is served.
        CapacityError: it needs more memory than is free.
        ServerFaultError: a checkpoint is unreadable.
    """
    check_sum(operation.source_paths, operation.coefficients)
    terms = [
        Term(coefficient, _open(folder, path, operation.base_model, decoder))
        for coefficient, folder, path in zip(
            operation.coefficients, sources, operation.source_paths, strict=True
        )
    ]
    plan = SumPlan.of(terms, decoder.targets)
    _refuse_beyond(plan, free_bytes(plan.nbytes))
    weights = weighted_sum(plan, decoder.targets, operation.model_id)
    files = checkpoint.save(folder, weights, operation.base_model, None)
    return Interpolated(files=files, lora=weights.layout.spec, path=operation.path)


def _open(folder: Path, path: str, base_model: str, decoder: Decoder) -> Saved:
    manifest = checkpoint.read_manifest(folder)
    if manifest.base_model != base_model:
        raise UserError(
            f"{path} was trained on {manifest.base_model!r}, but the sum is one of {base_model!r}: "
            "all source_paths must share one base model."
        )
    layout = Layout.of(manifest.lora, decoder.targets)
    return Saved(layout, checkpoint.MappedPairs(folder, layout))


@dataclass(frozen=True, eq=False)
class SumPlan:
    """What a sum will be and take, known from its terms' shapes.

    Attributes:
        terms: those with a coefficient other than 0.
        switches: the groups of linears that any term extends, the fields of a LoraSpec.
        stacked: K of each linear in them.
    """

    terms: Sequence[Term]
    switches: Mapping[str, bool]
    stacked: Mapping[Target, int]

    @classmethod
    def of(cls, terms: Sequence[Term], targets: tuple[Target, ...]) -> "SumPlan":
        switches = {
            name: any(getattr(term.weights.layout.spec, name) for term in terms)
            for name in ("train_attn", "train_mlp", "train_unembed")
        }
        active = [term for term in terms if term.coefficient]
        stacked = {
            target: sum(
                term.weights.layout.spec.rank
                for term in active
                if target.is_trained(term.weights.layout.spec)
            )
            for target in Layout.of(LoraSpec(**switches), targets).targets
        }
        return cls(active, switches, stacked)

    @property
    def reduces(self) -> bool:
        """Whether factors are brought to the sum's true rank."""
        return max(self.stacked.values()) > min(max(map(_full_rank, self.stacked)), MAX_RANK)

    @property
    def highest_rank(self) -> int:
        """The result has no higher one."""
        return max(1, *(self._kept(target) for target in self.stacked))

    @property
    def nbytes(self) -> int:
        """Of memory, at most: the result, and the largest linear's float64 on the way to it. A
        reduction has 5 times what it decomposes, in copies and factors, one term's factors, and the
        reduced factors until all ranks are known."""
        result = sum(4 * _width(t) for t in self.stacked) * self.highest_rank
        if not self.reduces:
            return result + max(8 * 2 * _width(t) * k for t, k in self.stacked.items())
        reduced = sum(4 * _width(t) * self._kept(t) for t in self.stacked)
        rank = max(term.weights.layout.spec.rank for term in self.terms)
        return reduced + max(
            result, *(8 * (5 * _decomposed(t, k) + 2 * _width(t) * rank)
                      for t, k in self.stacked.items())
        )  # fmt: skip

    def _kept(self, target: Target) -> int:
        stacked = self.stacked[target]
        return min(stacked, _full_rank(target), MAX_RANK) if self.reduces else stacked


def _width(target: Target) -> int:
    """Values of its A and B for each rank."""
    return target.in_features + target.out_features


def _full_rank(target: Target) -> int:
    return min(target.in_features, target.out_features)


def _is_dense(target: Target, stacked: int) -> bool:
    """Whether a reduction forms dW itself: beyond the full rank it is smaller than its factors."""
    return stacked > _full_rank(target)


def _decomposed(target: Target, stacked: int) -> int:
    """Values of what a reduction decomposes."""
    if _is_dense(target, stacked):
        return target.in_features * target.out_features
    return _width(target) * stacked


def _refuse_beyond(plan: SumPlan, free_bytes: int) -> None:
    if plan.nbytes > free_bytes:
        raise CapacityError(
            f"a sum of {len(plan.terms)} checkpoints, of a rank of up to {plan.highest_rank}, needs "
            f"{plan.nbytes / 2**30:.2f} GiB, and {free_bytes / 2**30:.2f} GiB are free. Sum fewer "
            "checkpoints, or such of lower rank, end other models, or raise the memory limit."
        )


def weighted_sum(plan: SumPlan, targets: tuple[Target, ...], model_id: str) -> AdapterWeights:
    """One adapter, on the CPU, whose dW on every linear is the weighted sum of the terms'.

    It extends every group of linears that any of them does; alpha is 32 as in every new model, so
    that training can go on from it at the usual learning rate. Rows that a linear does not need
    have a fresh A and B = 0: they add nothing and can learn.

    Args:
        model_id: seed of those fresh rows.

    Raises:
        UserError: its values overflow float32, or its true rank exceeds MAX_RANK.
    """
    if not plan.reduces:
        return _written(plan, targets, model_id, plan.highest_rank, partial(_stacked, plan.terms))
    reduced = {target: _narrow(_reduced(plan, target)) for target in plan.stacked}
    rank = max(1, *(len(a_KI) for a_KI, _ in reduced.values()))
    return _written(plan, targets, model_id, rank, reduced.pop)


def _stacked(terms: Sequence[Term], target: Target) -> Factors:
    """The terms' factors on one linear, one after the other."""
    a = [torch.zeros(0, target.in_features, dtype=torch.float64)]
    b = [torch.zeros(target.out_features, 0, dtype=torch.float64)]
    for factor, a_RI, b_OR in _on(terms, target):
        a.append(a_RI.double())
        b.append(b_OR.double() * factor)
    return torch.cat(a), torch.cat(b, dim=1)


def _on(terms: Sequence[Term], target: Target) -> Iterator[tuple[float, Tensor, Tensor]]:
    """(factor, A, B) of those terms that extend a linear; each adds factor B A to it."""
    for term in terms:
        pair = term.weights.pairs.get(target.name)
        if pair:
            yield term.coefficient * term.weights.layout.scale, *pair


def _reduced(plan: SumPlan, target: Target) -> Factors:
    """The sum on one linear in factors of its own rank, each with the roots of the singular values.

    Raises:
        UserError: that rank exceeds MAX_RANK, or the sum overflows.
    """
    if _is_dense(target, plan.stacked[target]):
        sum_OI = torch.zeros(target.out_features, target.in_features, dtype=torch.float64)
        for factor, a_RI, b_OR in _on(plan.terms, target):
            sum_OI.addmm_(b_OR.double() * factor, a_RI.double())
        a, b = _significant(sum_OI)
    else:
        a_KI, b_OK = _stacked(plan.terms, target)
        q_b, core_b = torch.linalg.qr(b_OK)
        q_a, core_a = torch.linalg.qr(a_KI.T)
        a, b = _significant(core_b @ core_a.T)
        a, b = a @ q_a.T, q_b @ b
    if len(a) > MAX_RANK:
        raise UserError(
            f"the sum has rank {len(a)} on {target.name}, and an adapter here has {MAX_RANK} at "
            "most. Sum fewer checkpoints, or such of lower rank."
        )
    return a, b


def _significant(product: Tensor) -> Factors:
    """A and B of a matrix, without the singular values that are rounding."""
    _refuse_overflow(product)
    u, s, v = torch.linalg.svd(product, full_matrices=False)
    rank = int((s > _NOISE * s.max()).sum()) if len(s) else 0
    root = s[:rank].sqrt()
    return root[:, None] * v[:rank], u[:, :rank] * root


def _narrow(factors: Factors) -> Factors:
    """Float32, which is half of what has to be kept until all ranks are known."""
    a_KI, b_OK = factors
    return a_KI.float(), b_OK.float()


def _written(
    plan: SumPlan,
    targets: tuple[Target, ...],
    model_id: str,
    rank: int,
    factors_of: Callable[[Target], Factors],
) -> AdapterWeights:
    """Each linear's factors as an adapter's memory, B over its scale."""
    layout = Layout.of(LoraSpec(rank=rank, **plan.switches), targets)
    weights = AdapterWeights(layout, initial_weights(layout, model_id=model_id))
    for target in layout.targets:
        _fill(weights.pairs[target.name], factors_of(target), layout.scale)
    return weights


def _fill(pair: tuple[Tensor, Tensor], factors: Factors, scale: float) -> None:
    (a_RI, b_OR), (a_KI, b_OK) = pair, factors
    a_RI[: len(a_KI)].copy_(a_KI)
    b_OR[:, : len(a_KI)].copy_(b_OK / scale)
    _refuse_overflow(a_RI)
    _refuse_overflow(b_OR)


def _refuse_overflow(values: Tensor) -> None:
    if not torch.isfinite(values).all():
        raise UserError(
            "the sum has values beyond float32's range. Are the coefficients as they should be?"
        )
