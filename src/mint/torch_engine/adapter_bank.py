"""Adapters side by side, so that one batched product serves several.

Shapes: N slots, R the highest rank of the adapters in the bank, I/O features of a linear.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mint.torch_engine.lora import AdapterWeights, Layout, Target


class AdapterBank:
    """Copies of the adapters of a batch, padded with zeros to one rank and one set of linears.

    B is kept times its adapter's scale. Holding the same adapters again costs nothing; one that is
    new costs one copy of its weights.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: list[AdapterWeights] = []
        self._layout: Layout | None = None
        self._flat_NS = torch.empty(0, 0, device=device)
        self._pairs: dict[str, tuple[Tensor, Tensor]] = {}

    @property
    def used(self) -> int:
        """Slots in use or idle; all of them take part in a product."""
        return len(self._held)

    @property
    def nbytes(self) -> int:
        return self._flat_NS.numel() * self._flat_NS.element_size()

    def hold(self, adapters: Sequence[AdapterWeights]) -> list[int]:
        """The slot of each of these adapters. Others leave, unless they are few: an adapter that
        pauses for a round would be copied again."""
        wanted = {id(adapter) for adapter in adapters}
        idle = [a for a in self._held if id(a) not in wanted]
        new = [a for a in adapters if all(a is not held for held in self._held)]
        if len(idle) > len(adapters) // 2 or new:
            self._drop(wanted)
        if new:
            self._take(new)
        slot = {id(adapter): n for n, adapter in enumerate(self._held)}
        return [slot[id(adapter)] for adapter in adapters]

    def pair(self, name: str) -> tuple[Tensor, Tensor] | None:
        """(A `[N, R, I]`, scaled B `[N, O, R]`) of a linear, if any adapter extends it."""
        pair = self._pairs.get(name)
        return pair and (pair[0][: self.used], pair[1][: self.used])

    def _drop(self, wanted: set[int]) -> None:
        """Forget the others; the last ones move into the holes."""
        n = 0
        while n < len(self._held):
            if id(self._held[n]) in wanted:
                n += 1
                continue
            last = self._held.pop()
            if n < len(self._held):
                self._held[n] = last
                self._flat_NS[n] = self._flat_NS[len(self._held)]

    def _take(self, new: Sequence[AdapterWeights]) -> None:
        together = [*self._held, *new]
        layout = _common_layout(together)
        if layout != self._layout or len(together) > len(self._flat_NS):
            self._layout, self._held, new = layout, [], together
            self._flat_NS = torch.empty(len(together), layout.size, device=self._device)
            self._pairs = layout.views(self._flat_NS)
        for adapter in new:
            self._write(adapter, self._flat_NS[len(self._held)])
            self._held.append(adapter)

    def _write(self, adapter: AdapterWeights, flat_S: Tensor) -> None:
        assert self._layout is not None
        rank, scale = adapter.layout.spec.rank, adapter.layout.scale
        whole = rank == self._layout.spec.rank and adapter.layout.targets == self._layout.targets
        if whole:
            flat_S.copy_(adapter.flat)
            flat_S[self._layout.a_size :].mul_(scale)
            return
        flat_S.zero_()
        for name, (a_RI, b_OR) in self._layout.views(flat_S).items():
            if name in adapter.pairs:
                a, b = adapter.pairs[name]
                a_RI[:rank] = a
                b_OR[:, :rank] = b * scale


def _common_layout(adapters: Sequence[AdapterWeights]) -> Layout:
    """Of the highest rank, with every linear that one of them extends."""
    rank = max(adapter.layout.spec.rank for adapter in adapters)
    targets: dict[Target, None] = {}
    for adapter in adapters:
        targets |= dict.fromkeys(adapter.layout.targets)
    return Layout(replace(adapters[0].layout.spec, rank=rank), tuple(targets))
