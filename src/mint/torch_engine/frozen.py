"""A weight that never changes, in the layout its device multiplies quickest.

oneDNN multiplies a matrix that was reordered once ("prepacked") up to twice as quickly as the plain
one at few rows, and as quickly at many; one layout serves every number of rows (engine.md). Its
operators are not public, so they are probed for, and the plain product is the way without them.

Shapes: T rows, I features in, O features out.
"""

import logging
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mint.torch_engine.threads import Shared

log = logging.getLogger(__name__)

_PACKED_FOR = 48
"""Rows the layout is chosen for; the same one is as good at 1 and at 960."""


class Packed:
    """Weights below each other as one reordered matrix: those that always read the same x are one
    product so, and one call."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self.out_features, self.in_features = weight_OI.shape
        self._bias = bias_O
        self._packed = _reordered(weight_OI)

    def product(self, x_TI: Tensor) -> Tensor:
        """x W^T + b of all of them, side by side."""
        with Shared(len(x_TI), self.out_features * self.in_features, x_TI.itemsize):
            return _multiply(x_TI, self._packed, self._bias)

    def dense(self) -> Tensor:
        """The weights as they were, `[O, I]`; a copy."""
        return self._packed.to_dense()


class FrozenMatrix:
    """x W^T + b, and g W for the way back."""

    def __init__(
        self,
        weight_OI: Tensor,
        bias_O: Tensor | None,
        *,
        keep_plain: bool,
        packed: Packed | None = None,
        first: int = 0,
    ) -> None:
        """
        Args:
            keep_plain: hold the plain weight beside a packed one; somebody reads it.
            packed: has this weight among others, from row `first` on.
        """
        weight_OI = weight_OI.detach()
        self.out_features, self.in_features = weight_OI.shape
        self.dtype = weight_OI.dtype
        self.bias = None if bias_O is None else bias_O.detach()
        if packed is None and _packs(weight_OI):
            packed = Packed(weight_OI, self.bias)
        self.packed, self._rows = packed, slice(first, first + self.out_features)
        packs_both = packed is not None and self.dtype == torch.float32
        self._plain = None if packs_both and not keep_plain else weight_OI
        self._transposed: Tensor | None = None

    @property
    def plain(self) -> Tensor:
        """The weight `[O, I]`; only where it was to be kept."""
        assert self._plain is not None
        return self._plain

    @property
    def nbytes(self) -> int:
        """Of all layouts held."""
        one = self.out_features * self.in_features * self.dtype.itemsize
        return one * sum(x is not None for x in (self._plain, self.packed, self._transposed))

    def product(self, x_TI: Tensor) -> Tensor:
        """x W^T + b."""
        if self.packed is None:
            return F.linear(x_TI, self.plain, self.bias)
        y = self.packed.product(x_TI)
        return y if y.shape[1] == self.out_features else y[:, self._rows]

    def back(self, g_TO: Tensor, onto_TI: Tensor | None = None) -> Tensor:
        """g W, or `onto` + g W, for which `onto` is used up. The first call packs the transposed
        weight, which only training needs."""
        if self.packed is None or self.dtype != torch.float32:  # in bf16 packing gains nothing
            return g_TO @ self.plain if onto_TI is None else onto_TI.addmm_(g_TO, self.plain)
        if self._transposed is None:
            weight_OI = self.packed.dense()[self._rows]
            self._transposed = _reordered(weight_OI.t())
        if onto_TI is None:
            return _multiply(g_TO, self._transposed, None)
        return torch.ops.mkldnn._linear_pointwise.binary(
            g_TO.contiguous(), onto_TI, self._transposed, None, "add"
        )


def matrices_of(linears: Sequence[nn.Linear], *, keep_plain: bool) -> list[FrozenMatrix]:
    """The matrices of linears that always read the same x, packed as one if they can be."""
    weights = [linear.weight.detach() for linear in linears]
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    packed = None
    if len(linears) > 1 and len(biases) in (0, len(linears)) and all(map(_packs, weights)):
        packed = Packed(torch.cat(weights), torch.cat(biases) if biases else None)
    firsts = accumulate((len(weight) for weight in weights), initial=0)
    return [
        FrozenMatrix(
            linear.weight, linear.bias, keep_plain=keep_plain, packed=packed,
            first=first if packed else 0,
        )
        for linear, first in zip(linears, firsts, strict=False)
    ]  # fmt: skip


def products(x_TI: Tensor, matrices: Sequence[FrozenMatrix]) -> tuple[Tensor, ...]:
    """What each makes of x; of matrices that are packed as one, views of one product."""
    packed, sizes = matrices[0].packed, [matrix.out_features for matrix in matrices]
    as_one = packed is not None and all(matrix.packed is packed for matrix in matrices)
    if packed is None or not as_one or sum(sizes) != packed.out_features:
        return tuple(matrix.product(x_TI) for matrix in matrices)
    return packed.product(x_TI).split(sizes, dim=1)


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x.contiguous(), packed, bias, "none", [], "")


def _reordered(weight_OI: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), _PACKED_FOR)


def _packs(weight_OI: Tensor) -> bool:
    return weight_OI.device.type == "cpu" and _can_pack(weight_OI.dtype)


@cache
def _can_pack(dtype: torch.dtype) -> bool:
    """Whether this build and processor have the operators for this type, and they agree with the
    plain product."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, 16, generator=generator).to(dtype)
    x = torch.randn(3, 16, generator=generator).to(dtype)
    try:
        found = _multiply(x, torch.ops.mkldnn._reorder_linear_weight(weight, 3), None)
    except (RuntimeError, AttributeError) as error:
        log.info("%s weights are not prepacked here: %s", dtype, str(error).splitlines()[0])
        return False
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.1}[dtype]
    return torch.allclose(found, F.linear(x, weight), atol=tolerance, rtol=tolerance)
