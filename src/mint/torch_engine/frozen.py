"""A weight that never changes, in the layout its device multiplies quickest.

oneDNN multiplies a matrix that was reordered once ("prepacked") up to twice as quickly as the plain
one at few rows, and as quickly at many; one layout serves every number of rows (engine.md). Its
operators are not public, so they are probed for, and the plain product is the way without them.

Shapes: T rows, I features in, O features out.
"""

import logging
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

log = logging.getLogger(__name__)

_PACKED_FOR = 48
"""Rows the layout is chosen for; the same one is as good at 1 and at 960."""


class FrozenMatrix:
    """x W^T + b, and g W for the way back."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, *, keep_plain: bool) -> None:
        """
        Args:
            keep_plain: hold the plain weight beside a packed one; somebody reads it.
        """
        weight_OI = weight_OI.detach()
        self.out_features, self.in_features = weight_OI.shape
        self.dtype = weight_OI.dtype
        self.bias = None if bias_O is None else bias_O.detach()
        self._packed = _packed(weight_OI)
        packs_both = self._packed is not None and self.dtype == torch.float32
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
        return one * sum(x is not None for x in (self._plain, self._packed, self._transposed))

    def product(self, x_TI: Tensor) -> Tensor:
        """x W^T + b."""
        if self._packed is None:
            return F.linear(x_TI, self.plain, self.bias)
        return _multiply(x_TI, self._packed, self.bias)

    def back(self, g_TO: Tensor, onto_TI: Tensor | None = None) -> Tensor:
        """g W, or `onto` + g W, for which `onto` is used up. The first call packs the transposed
        weight, which only training needs."""
        if self._packed is None or self.dtype != torch.float32:  # in bf16 packing gains nothing
            return g_TO @ self.plain if onto_TI is None else onto_TI.addmm_(g_TO, self.plain)
        if self._transposed is None:
            self._transposed = _packed(self._packed.to_dense().t().contiguous())
            assert self._transposed is not None
        if onto_TI is None:
            return _multiply(g_TO, self._transposed, None)
        return torch.ops.mkldnn._linear_pointwise.binary(
            g_TO.contiguous(), onto_TI, self._transposed, None, "add"
        )


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x.contiguous(), packed, bias, "none", [], "")


def _packed(weight_OI: Tensor) -> Tensor | None:
    if weight_OI.device.type != "cpu" or not _can_pack(weight_OI.dtype):
        return None
    return torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), _PACKED_FOR)


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
