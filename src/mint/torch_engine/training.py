"""TrainingPass: the loss of some data under one adapter and its gradient, micro-batch by micro-batch.

A pass hands out parts; shared_batch runs the model over one or several (of different passes), and
gives each its hidden states back. Only what a pass does alone is here.

Shapes: T packed tokens of a part, P (position, target) pairs, E model width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mint.core.operations import ForwardBackward, PassResult
from mint.core.passes import check_pass
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.logprobs import Pairs, score, score_and_differentiate
from mint.torch_engine.lora import TrainedAdapter
from mint.torch_engine.losses import TORCH_LOSSES, LossInputs
from mint.torch_engine.packing import PackedBatch, pack
from mint.torch_engine.pass_data import PassData
from mint.torch_engine.prefix_tree import micro_batches, prefix_tree

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """The next micro-batch of a pass.

    Attributes:
        members: datums of the pass.
        pairs_P: their pairs, as indices into the pass's.
        differentiated: whether a gradient is wanted and any of its positions can give one.
    """

    batch: PackedBatch
    members: Ints
    pairs_P: Ints
    pairs: Pairs
    inputs: LossInputs
    differentiated: bool

    @property
    def tokens(self) -> int:
        """Packed."""
        return len(self.batch.tokens_T)


class TrainingPass:
    """The loss of some data and, unless forward_only, its gradient, added to the adapter's.

    Data in which no position has weight goes first, forward only.

    Raises:
        UserError: a datum does not fit the loss or the model; nothing was computed then.
    """

    def __init__(
        self, decoder: Decoder, adapter: TrainedAdapter, operation: ForwardBackward
    ) -> None:
        checked = check_pass(operation, decoder)
        self.adapter = adapter
        self.loss = checked.loss
        self._decoder = decoder
        self._torch_loss = TORCH_LOSSES[operation.loss_fn]
        self.data = PassData.of(operation.data, checked.inputs, checked.loss)
        self.logprobs_P = np.zeros(len(self.data.targets_P), dtype=np.float32)
        """Known once the pass is done."""
        idle, active = self._by_weight(operation.forward_only)
        self._waiting = [(data, wanted) for data, wanted in ((idle, False), (active, True)) if data]
        self._part: tuple[int, Part] | None = None
        self._loss_sum = 0.0
        self._active = 0

    def _by_weight(self, forward_only: bool) -> tuple[list[int], list[int]]:
        """(datums that give no gradient, the others)."""
        everything = range(len(self.data.inputs))
        if forward_only:
            return list(everything), []
        weight = self._torch_loss.weight
        if weight is None:
            return [], list(everything)
        weighted = np.add.reduceat(self.data.values[weight] != 0, self.data.starts_N)
        idle = [i for i in everything if not weighted[i]]
        return idle, [i for i in everything if weighted[i]]

    @property
    def done(self) -> bool:
        return not self._waiting

    @property
    def differentiates(self) -> bool:
        """Whether its next part has a gradient. Not of a pass that is done."""
        return self._waiting[0][1]

    @property
    def tokens_left(self) -> int:
        """Of this part's kind, before packing."""
        return sum(len(self.data.inputs[i]) for i in self._waiting[0][0])

    def part(self, token_budget: int) -> Part:
        """The next micro-batch: at most so many packed tokens, but one datum at least. Asking again
        gives the same; `took` goes on to the one after it."""
        if self._part is None or self._part[0] != token_budget:
            self._part = token_budget, self._cut(token_budget)
        return self._part[1]

    def _cut(self, token_budget: int) -> Part:
        left, wanted = self._waiting[0]
        first = micro_batches(prefix_tree(self.data.inputs, left), token_budget)[0]
        batch = pack(first, self.data.inputs)
        members = np.array(sorted(batch.rows), dtype=np.int64)
        pairs_P = self.data.pairs_of(members)
        rows_P = np.repeat(
            np.concatenate([batch.rows[i] for i in members]),
            self.data.targets_per_position(members),
        )
        datum_P = np.repeat(np.arange(len(members)), self.data.sizes_N[members])
        put = self._put
        inputs_P = {name: put(value[pairs_P]) for name, value in self.data.values.items()}
        return Part(
            batch, members, pairs_P, Pairs(put(rows_P), put(self.data.targets_P[pairs_P])),
            LossInputs(put(datum_P), inputs_P, self.loss.config), wanted,
        )  # fmt: skip

    def _put(self, values: NDArray) -> Tensor:
        return torch.from_numpy(values).to(self._decoder.device)

    def gradient(
        self, part: Part, hidden_TE: Tensor, tick: Callable[[float], None]
    ) -> tuple[Tensor, Tensor | None]:
        """(logprobs `[P]`, d(loss)/d(hidden) `[T, E]`), the latter None for a part without one.
        The head's adapter gets its gradient added.

        Args:
            tick: told of the rows of the head that were computed, once through for each unit.
        """
        temperature = self.loss.temperature
        if not part.differentiated:
            logp_P = score(
                self._decoder, self.adapter, hidden_TE, part.pairs, temperature, tick=tick
            )
            return logp_P, None
        active_P = self._torch_loss.active(part.inputs)
        slope = self._slopes(part, hidden_TE, active_P, tick)
        return score_and_differentiate(
            self._decoder, self.adapter, hidden_TE, part.pairs, temperature, slope,
            active_P=active_P, tick=tick,
        )  # fmt: skip

    def _slopes(
        self, part: Part, hidden_TE: Tensor, active_P: Tensor, tick: Callable[[float], None]
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """(logprobs of some active pairs, their indices) -> d(loss)/d(logprob) of each."""
        if self._torch_loss.elementwise:
            return lambda logp, which: self._slope(logp, select(part.inputs, which))
        # the slope of one position needs all logprobs of its datum: score first
        chosen = active_P.nonzero()[:, 0]
        known = score(
            self._decoder, self.adapter, hidden_TE, part.pairs.of(chosen), self.loss.temperature,
            tick=tick,
        )  # fmt: skip
        slope_P = torch.zeros(len(active_P), device=known.device)
        slope_P[chosen] = self._slope(known, select(part.inputs, chosen))
        return lambda logp, which: slope_P[which]

    def _slope(self, logp: Tensor, x: LossInputs) -> Tensor:
        with torch.enable_grad():
            leaf = logp.detach().requires_grad_(True)
            loss = self._torch_loss.per_position(leaf, x).sum()
            return torch.autograd.grad(loss, leaf)[0]

    @torch.no_grad()
    def took(self, part: Part, logp_P: Tensor) -> None:
        """Its part is computed."""
        active = self._torch_loss.active(part.inputs).nonzero()[:, 0]  # the loss is 0 elsewhere
        loss_P = self._torch_loss.per_position(logp_P[active], select(part.inputs, active))
        self._loss_sum += float(loss_P.sum())
        self._active += len(active)
        self.logprobs_P[part.pairs_P] = logp_P.cpu().numpy()
        left, wanted = self._waiting[0]
        taken = set(part.members.tolist())
        left = [i for i in left if i not in taken]
        self._waiting[:1] = [(left, wanted)] if left else []
        self._part = None

    def result(self) -> PassResult:
        return PassResult(
            logprobs=self.data.split(self.logprobs_P),
            metrics={"loss:sum": self._loss_sum, "active_tokens:sum": float(self._active)},
        )


def select(x: LossInputs, which: Tensor) -> LossInputs:
    return LossInputs(
        x.datum_P[which], {name: value[which] for name, value in x.values.items()}, x.config
    )
