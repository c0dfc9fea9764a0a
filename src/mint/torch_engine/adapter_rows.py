"""Which adapter applies to which rows of a forward pass, and the quickest way to add it.

Long runs of rows are added one adapter after the other: each is a product of its own. Where many
adapters have few rows each (decoding), their products are batched: the adapters lie side by side
in a bank, and all rows take part in one pair of `bmm`.

Shapes: T packed tokens, I/O features into and out of a linear, R rank, S ranks of several linears
together, N adapters of a batch, M rows of the one that has most.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from mint.torch_engine.adapter_bank import AdapterBank
from mint.torch_engine.lora import AdapterWeights, Stack, TrainedAdapter

Counts = Sequence[tuple[AdapterWeights | None, int]]
"""(adapter, how many packed tokens in a row are its own); None is the bare base model."""

BATCHED_ROWS = 16
"""Up to so many rows, an adapter's products cost their calls more than their arithmetic."""


@dataclass(frozen=True)
class Rows:
    """A run of packed tokens that one adapter applies to."""

    start: int
    stop: int
    adapter: AdapterWeights

    def of(self, x_TI: Tensor) -> Tensor:
        whole = self.start == 0 and self.stop == x_TI.shape[0]
        return x_TI if whole else x_TI[self.start : self.stop]


@dataclass(frozen=True)
class Piece:
    """A run of rows and what its adapter adds to linears that read the same x."""

    run: Rows
    stack: Stack

    def add_(self, x_TI: Tensor, ys: Sequence[Tensor]) -> Tensor:
        """y += scale * (x A^T) B^T for each linear's y `[T, O]`, in place; returns x A^T `[T, S]`."""
        run, stack = self.run, self.stack
        low_TS = F.linear(run.of(x_TI).to(stack.a_SI.dtype), stack.a_SI)
        us = low_TS.split(low_TS.shape[1] // len(ys), dim=1) if len(ys) > 1 else (low_TS,)
        for y_TO, u_TR, b_OR in zip(ys, us, stack.bs, strict=True):
            add_product_(run.of(y_TO), u_TR, b_OR.t(), stack.scale)
        return low_TS


@dataclass(frozen=True, eq=False)
class _Batched:
    """Short runs of several adapters, padded to equal length.

    Attributes:
        gather: packed row of each cell `[slots * M]`; pads and idle slots repeat some row.
        cells, rows: the real ones among the cells, and their packed rows.
    """

    bank: AdapterBank
    slots: int
    gather: Tensor
    cells: Tensor
    rows: Tensor

    @classmethod
    def of(cls, bank: AdapterBank, runs: Sequence[Rows], device: torch.device) -> "_Batched":
        slots = bank.hold([run.adapter for run in runs])
        most = max(run.stop - run.start for run in runs)
        gather = [0] * (bank.used * most)
        cells: list[int] = []
        rows: list[int] = []
        for run, slot in zip(runs, slots, strict=True):
            count = run.stop - run.start
            here = range(slot * most, slot * most + count)
            gather[here.start : here.stop] = range(run.start, run.stop)
            cells += here
            rows += range(run.start, run.stop)
        tensors = (torch.tensor(index, device=device) for index in (gather, cells, rows))
        return cls(bank, bank.used, *tensors)

    def add_(self, name: str, x_TI: Tensor, y_TO: Tensor) -> None:
        pair = self.bank.pair(name)
        if pair is None:
            return
        a_NRI, b_NOR = pair
        x_NMI = x_TI.index_select(0, self.gather).unflatten(0, (self.slots, -1))
        u_NMR = torch.bmm(x_NMI.to(a_NRI.dtype), a_NRI.transpose(1, 2))
        added_NMO = torch.bmm(u_NMR, b_NOR.transpose(1, 2))
        y_TO.index_add_(0, self.rows, added_NMO.flatten(0, 1)[self.cells].to(y_TO.dtype))


class AdapterContext:
    """Which adapters apply to the rows of the forward pass now running."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        self._bank = AdapterBank(self._device)
        self._runs: tuple[Rows, ...] = ()
        self._batched: _Batched | None = None
        self.anchor = torch.zeros((), device=self._device, requires_grad=True)
        """Stands for the adapters in a graph: their own gradients bypass it."""

    @property
    def nbytes(self) -> int:
        """Memory of the bank."""
        return self._bank.nbytes

    @contextmanager
    def rows(self, counts: Counts, *, may_pause: bool = False) -> Iterator[None]:
        """Inside, packed tokens belong to these adapters: (adapter, how many), in order.

        Args:
            may_pause: other forward passes may come in between; they would take the bank's slots.
        """
        before = self._runs, self._batched
        runs = _runs(counts)
        short = [] if may_pause or torch.is_grad_enabled() else _worth_batching(runs)
        self._batched = _Batched.of(self._bank, short, self._device) if short else None
        chosen = set(map(id, short))
        self._runs = tuple(run for run in runs if id(run) not in chosen)
        try:
            yield
        finally:
            self._runs, self._batched = before

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Inside, other forward passes may begin, end and pause; then these rows are in force again."""
        before = self._runs, self._batched
        try:
            yield
        finally:
            self._runs, self._batched = before

    def pieces(self, names: tuple[str, ...]) -> list[Piece]:
        """The runs whose adapter extends these linears, which read the same x; those in the bank
        aside."""
        found = ((run, run.adapter.stack(names)) for run in self._runs)
        return [Piece(run, stack) for run, stack in found if stack]

    def add_(self, names: tuple[str, ...], x_TI: Tensor, ys: Sequence[Tensor]) -> None:
        """y += scale * (x A^T) B^T for each linear's y, on every row whose adapter extends it. In
        place, and without a graph."""
        for piece in self.pieces(names):
            piece.add_(x_TI, ys)
        if self._batched:
            for name, y_TO in zip(names, ys, strict=True):
                self._batched.add_(name, x_TI, y_TO)


def add_product_(y: Tensor, left: Tensor, right: Tensor, scale: float) -> None:
    """y += scale * left @ right, where `y` may be of a lower precision."""
    if y.dtype == left.dtype:
        y.addmm_(left, right, alpha=scale)
    else:
        y.add_((left @ right).to(y.dtype), alpha=scale)


def _runs(counts: Counts) -> list[Rows]:
    """Neighbours of one adapter put together, the bare base model left out."""
    runs: list[Rows] = []
    at = 0
    for adapter, count in counts:
        if adapter is not None and count:
            if runs and runs[-1].adapter is adapter and runs[-1].stop == at:
                runs[-1] = Rows(runs[-1].start, at + count, adapter)
            else:
                runs.append(Rows(at, at + count, adapter))
        at += count
    return runs


def _worth_batching(runs: Sequence[Rows]) -> list[Rows]:
    """The short runs of several adapters; an adapter in training has no place in the bank, since
    its weights change."""
    short = [
        run
        for run in runs
        if run.stop - run.start <= BATCHED_ROWS and not isinstance(run.adapter, TrainedAdapter)
    ]
    distinct = {id(run.adapter) for run in short}
    return short if len(short) > 1 and len(distinct) == len(short) else []
