"""A weighted sum of adapters, as one adapter that computes exactly that.

What an adapter adds to a weight is dW = (alpha / r) B A. The sum c_1 dW_1 + c_2 dW_2 + … is wanted,
and averaging A and B by themselves does not give it, not even between adapters of one shape and
one origin: B_1 A_2 would come in. Two ways that are exact are taken:

- Concatenation. The A are put below one another, the B side by side, each B scaled by its term's
  coefficient. The rank is the sum of the ranks (of those terms that extend the same linear).
- Where that exceeds what a weight can have, min(in, out), or what we serve, MAX_RANK: QR of both
  stacks and an SVD of the small core between them, which finds the rank that the sum really has.
  Done in float64; what is cut off is below 1e-12 of the largest singular value.

Shapes: R rank of a sum as it is written, K sum of the ranks, I inputs, O outputs of a linear.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mint.core.errors import UserError
from mint.core.interpolation import check_sum
from mint.core.lora import MAX_RANK, LoraSpec
from mint.core.operations import InterpolateCheckpoints, Interpolated
from mint.torch_engine import checkpoint
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.lora import AdapterWeights, Layout, Target, initial_weights

_NOISE = 1e-12
"""Singular values below this share of the largest are rounding: float64 leaves about 1e-15."""

Factors = tuple[Tensor, Tensor]
"""(A `[K, I]`, B `[O, K]`), float64; dW = B A."""


@dataclass(frozen=True, eq=False)
class Term:
    """One adapter and what it counts for."""

    coefficient: float
    weights: AdapterWeights


def interpolate(
    operation: InterpolateCheckpoints, decoder: Decoder, sources: Sequence[Path], folder: Path
) -> Interpolated:
    """Write the weighted sum of the checkpoints in `sources` as a checkpoint into `folder`.

    It has no optimizer state: Adam's moments of different runs have no meaningful sum.

    Raises:
        UserError: a coefficient is missing or not finite, a checkpoint is of another base model,
            the sum overflows float32, or its true rank exceeds what is served.
        ServerFaultError: a checkpoint is unreadable.
    """
    check_sum(operation.source_paths, operation.coefficients)
    terms = [
        Term(coefficient, _load(folder, path, operation.base_model, decoder))
        for coefficient, folder, path in zip(
            operation.coefficients, sources, operation.source_paths, strict=True
        )
    ]
    weights = weighted_sum(terms, decoder.targets, operation.model_id)
    files = checkpoint.save(folder, weights, operation.base_model, None)
    return Interpolated(files=files, lora=weights.layout.spec, path=operation.path)


def _load(folder: Path, path: str, base_model: str, decoder: Decoder) -> AdapterWeights:
    manifest = checkpoint.read_manifest(folder)
    if manifest.base_model != base_model:
        raise UserError(
            f"{path} was trained on {manifest.base_model!r}, but the sum is one of {base_model!r}: "
            "all source_paths must share one base model."
        )
    layout = Layout.of(manifest.lora, decoder.targets)
    return AdapterWeights(layout, checkpoint.load_weights(folder, layout))


def weighted_sum(
    terms: Sequence[Term], targets: tuple[Target, ...], model_id: str
) -> AdapterWeights:
    """One adapter, on the CPU, whose dW on every linear is the weighted sum of the terms'.

    It extends every group of linears that any of them does; alpha is 32 as in every new model, so
    that training can go on from it at the usual learning rate. Rows that a linear does not need
    have a fresh A and B = 0: they add nothing and can learn.

    Args:
        model_id: seed of those fresh rows.

    Raises:
        UserError: its values overflow float32, or its true rank exceeds MAX_RANK.
    """
    switches = {
        name: any(getattr(term.weights.layout.spec, name) for term in terms)
        for name in ("train_attn", "train_mlp", "train_unembed")
    }
    trained = Layout.of(LoraSpec(**switches), targets).targets
    active = [term for term in terms if term.coefficient]
    factors = {target.name: _stacked(active, target) for target in trained}
    widest = max(min(target.in_features, target.out_features) for target in trained)
    if _rank(factors) > min(widest, MAX_RANK):
        factors = {name: _reduced(*pair) for name, pair in factors.items()}
    rank = max(1, _rank(factors))
    if rank > MAX_RANK:
        raise UserError(
            f"the sum has rank {rank}, and an adapter here has {MAX_RANK} at most. Sum fewer "
            "checkpoints, or such of lower rank."
        )
    layout = Layout.of(LoraSpec(rank=rank, **switches), targets)
    return AdapterWeights(layout, _flat(layout, factors, model_id))


def _stacked(terms: Sequence[Term], target: Target) -> Factors:
    """The terms' factors on one linear, one after the other."""
    a = [torch.zeros(0, target.in_features, dtype=torch.float64)]
    b = [torch.zeros(target.out_features, 0, dtype=torch.float64)]
    for term in terms:
        pair = term.weights.pairs.get(target.name)
        if pair:
            a.append(pair[0].double())
            b.append(pair[1].double() * (term.coefficient * term.weights.layout.scale))
    return torch.cat(a), torch.cat(b, dim=1)


def _rank(factors: Mapping[str, Factors]) -> int:
    """What an adapter needs to hold them all."""
    return max(len(a_KI) for a_KI, _ in factors.values())


def _reduced(a_KI: Tensor, b_OK: Tensor) -> Factors:
    """The same product in factors of its own rank, each with the roots of the singular values."""
    q_b, core_b = torch.linalg.qr(b_OK)
    q_a, core_a = torch.linalg.qr(a_KI.T)
    u, s, v = torch.linalg.svd(core_b @ core_a.T, full_matrices=False)
    rank = int((s > _NOISE * s.max()).sum()) if len(s) else 0
    root = s[:rank].sqrt()
    return root[:, None] * (v[:rank] @ q_a.T), (q_b @ u[:, :rank]) * root


def _flat(layout: Layout, factors: Mapping[str, Factors], model_id: str) -> Tensor:
    """Factors as an adapter's memory, B over its scale."""
    flat = initial_weights(layout, model_id=model_id)
    for name, (a, b) in layout.views(flat).items():
        a_KI, b_OK = factors[name]
        a[: len(a_KI)].copy_(a_KI)
        b[:, : len(a_KI)].copy_(b_OK / layout.scale)
    if not torch.isfinite(flat).all():
        raise UserError(
            "the sum has values beyond float32's range. Are the coefficients as they should be?"
        )
    return flat
