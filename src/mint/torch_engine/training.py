"""TrainingPass: the loss of some data under one adapter and its gradient, micro-batch by micro-batch.

Shapes: T packed tokens of a part, P (position, target) pairs, E model width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mint.core.operations import ForwardBackward, PassResult
from mint.core.passes import check_pass
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.logprobs import Pairs, score, score_and_differentiate
from mint.torch_engine.lora import TrainedAdapter
from mint.torch_engine.losses import TORCH_LOSSES, LossInputs
from mint.torch_engine.pass_data import PassData
from mint.torch_engine.passes import Part, PassInParts


@dataclass(frozen=True, eq=False, kw_only=True)
class LossPart(Part):
    """A part with what its loss needs."""

    pairs: Pairs
    inputs: LossInputs


class TrainingPass(PassInParts[LossPart]):
    """The loss of some data and, unless forward_only, its gradient, added to the adapter's.

    Data in which no position has weight goes first, forward only.

    Raises:
        UserError: a datum does not fit the loss or the model; nothing was computed then.
    """

    def __init__(
        self, decoder: Decoder, adapter: TrainedAdapter, operation: ForwardBackward
    ) -> None:
        checked = check_pass(operation, decoder)
        self.loss = checked.loss
        self._torch_loss = TORCH_LOSSES[operation.loss_fn]
        data = PassData.of(operation.data, checked.inputs, checked.loss)
        learns_N = np.full(len(data.inputs), not operation.forward_only)
        if self._torch_loss.weight is not None:
            learns_N &= data.any_of(data.values[self._torch_loss.weight] != 0)
        super().__init__(decoder, adapter, data, learns_N)
        self._loss_sum = 0.0
        self._active = 0

    def _prepare(self, part: Part) -> LossPart:
        members, pairs_P = part.members, part.pairs_P
        rows_P = np.repeat(
            np.concatenate([part.batch.rows[i] for i in members]),
            self.data.targets_per_position(members),
        )
        datum_P = np.repeat(np.arange(len(members)), self.data.sizes_N[members])
        put = self._put
        inputs_P = {name: put(value[pairs_P]) for name, value in self.data.values.items()}
        return LossPart(
            **vars(part),
            pairs=Pairs(put(rows_P), put(self.data.targets_P[pairs_P])),
            inputs=LossInputs(put(datum_P), inputs_P, self.loss.config),
        )

    def gradient(
        self, part: LossPart, hidden_TE: Tensor, tick: Callable[[float], None]
    ) -> tuple[Tensor, Tensor | None]:
        """Finds logprobs `[P]`; see PassInParts."""
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
        self, part: LossPart, hidden_TE: Tensor, active_P: Tensor, tick: Callable[[float], None]
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
    def _note(self, part: LossPart, found: Tensor) -> None:
        active = self._torch_loss.active(part.inputs).nonzero()[:, 0]  # the loss is 0 elsewhere
        loss_P = self._torch_loss.per_position(found[active], select(part.inputs, active))
        self._loss_sum += float(loss_P.sum())
        self._active += len(active)
        self.logprobs_P[part.pairs_P] = found.cpu().numpy()

    def result(self) -> PassResult:
        return PassResult(
            logprobs=self.data.split(self.logprobs_P),
            metrics={"loss:sum": self._loss_sum, "active_tokens:sum": float(self._active)},
        )


def select(x: LossInputs, which: Tensor) -> LossInputs:
    return LossInputs(
        x.datum_P[which], {name: value[which] for name, value in x.values.items()}, x.config
    )
