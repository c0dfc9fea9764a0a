"""One forward_backward as a row of bounded slices, one micro-batch each.

Shapes: T packed tokens, P (position, target) pairs of a micro-batch.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mint.core.datum import Datum
from mint.core.losses import Loss
from mint.core.operations import ForwardBackward, PassResult
from mint.core.passes import check_pass
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.logprobs import Pairs, score, score_and_differentiate
from mint.torch_engine.lora import TrainedAdapter
from mint.torch_engine.losses import TORCH_LOSSES, LossInputs
from mint.torch_engine.packing import PackedBatch, group_by_prefix, micro_batches, pack

ACTIVATION_BYTES = 1 << 30
"""What the saved activations of one micro-batch may take."""


def token_budget(decoder: Decoder) -> int:
    """Packed tokens whose saved activations fit ACTIVATION_BYTES.

    A layer saves about 12 vectors of the model's width and 5 of the MLP's per token (measured on
    the 135M model: 2.0 MB a token with 30 layers, this says 1.7).
    """
    per_token = decoder.layers * (12 * decoder.width + 5 * decoder.inner_width) * 4
    return max(256, ACTIVATION_BYTES // per_token)


class TrainingPass:
    """The loss of some data and, unless forward_only, its gradient.

    Raises:
        UserError: a datum does not fit the loss or the model; nothing was computed then.
    """

    def __init__(
        self, decoder: Decoder, adapter: TrainedAdapter, operation: ForwardBackward,
        *, budget: int | None = None,
    ) -> None:  # fmt: skip
        self._decoder = decoder
        self._adapter = adapter
        self._operation = operation
        checked = check_pass(operation, decoder)
        self._loss = checked.loss
        self._torch_loss = TORCH_LOSSES[operation.loss_fn]
        self._inputs = checked.inputs
        groups = group_by_prefix(self._inputs)
        lengths = [len(tokens) for tokens in self._inputs]
        self._batches = micro_batches(groups, lengths, budget or token_budget(decoder))
        self._next = 0
        self._logprobs: dict[int, NDArray[np.float32]] = {}
        self._loss_sum = 0.0
        self._active = 0

    @property
    def done(self) -> bool:
        return self._next >= len(self._batches)

    def run_slice(self) -> None:
        """Compute the next micro-batch. Gradients go into the adapter's flat_grad."""
        batch = pack(self._batches[self._next], self._inputs)
        self._next += 1
        members = sorted(batch.rows)
        pairs, loss_inputs, sizes = self._flatten(batch, members)
        if self._operation.forward_only:
            logp_P = self._forward(batch, pairs)
        else:
            logp_P = self._forward_backward(batch, pairs, loss_inputs)
        with torch.no_grad():
            self._loss_sum += float(self._torch_loss.per_position(logp_P, loss_inputs).sum())
            self._active += int(self._torch_loss.active(loss_inputs).sum())
        for i, logp in zip(members, logp_P.cpu().split(sizes), strict=True):
            shape = self._operation.data[i].loss_fn_inputs["target_tokens"].shape
            self._logprobs[i] = logp.numpy().reshape(shape)

    def result(self) -> PassResult:
        return PassResult(
            logprobs=tuple(self._logprobs[i] for i in range(len(self._operation.data))),
            metrics={"loss:sum": self._loss_sum, "active_tokens:sum": float(self._active)},
        )

    def _hidden(self, batch: PackedBatch) -> Tensor:
        device = self._decoder.device
        return self._decoder.hidden(
            torch.from_numpy(batch.tokens_T).to(device),
            torch.from_numpy(batch.positions_T).to(device),
            batch.plan,
            [(self._adapter, len(batch.tokens_T))],
        )

    def _forward(self, batch: PackedBatch, pairs: Pairs) -> Tensor:
        with torch.no_grad():
            hidden_TE = self._hidden(batch)
        return score(self._decoder, self._adapter, hidden_TE, pairs, self._loss.temperature)

    def _forward_backward(self, batch: PackedBatch, pairs: Pairs, x: LossInputs) -> Tensor:
        """The body with gradient, the head by hand, then the body backward."""
        hidden_TE = self._hidden(batch)
        h_TE, active = hidden_TE.detach(), self._torch_loss.active(x)
        idle = (~active).nonzero()[:, 0]
        chosen = active.nonzero()[:, 0]
        args = (self._decoder, self._adapter, h_TE)
        temperature = self._loss.temperature
        logp_P = torch.empty(len(active), device=h_TE.device)
        if len(idle):
            logp_P[idle] = score(*args, pairs.of(idle), temperature)
        if not len(chosen):
            return logp_P
        if self._torch_loss.elementwise:

            def slope(logp: Tensor, which: Tensor) -> Tensor:
                return self._slope(logp, _select(x, chosen[which]))
        else:  # the slope of one position needs all logprobs of its datum: score first
            known = score(*args, pairs.of(chosen), temperature)
            slopes = self._slope(known, _select(x, chosen))

            def slope(logp: Tensor, which: Tensor) -> Tensor:
                return slopes[which]

        logp_P[chosen], grad_TE = score_and_differentiate(
            *args, pairs.of(chosen), temperature, slope
        )
        if hidden_TE.requires_grad:  # an adapter of the head alone leaves the body without
            hidden_TE.backward(grad_TE)
        return logp_P

    def _slope(self, logp: Tensor, x: LossInputs) -> Tensor:
        """d(loss)/d(logprob) of each pair."""
        with torch.enable_grad():
            leaf = logp.detach().requires_grad_(True)
            loss = self._torch_loss.per_position(leaf, x).sum()
            return torch.autograd.grad(loss, leaf)[0]

    def _flatten(
        self, batch: PackedBatch, members: Sequence[int]
    ) -> tuple[Pairs, LossInputs, list[int]]:
        """Pairs and loss inputs of a micro-batch's datums, and how many pairs each has."""
        data = self._operation.data
        rows, targets, datum_of, sizes = [], [], [], []
        values: dict[str, list[NDArray[np.float32]]] = {}
        for n, i in enumerate(members):
            tensors = data[i].loss_fn_inputs
            target = tensors["target_tokens"]
            k = 1 if target.ndim == 1 else target.shape[1]
            rows.append(np.repeat(batch.rows[i], k))
            targets.append(np.asarray(target, dtype=np.int64).reshape(-1))
            sizes.append(target.size)
            datum_of.append(np.full(target.size, n, dtype=np.int64))
            for name, value in loss_values(data[i], self._loss).items():
                values.setdefault(name, []).append(value)
        device = self._decoder.device

        def tensor(parts: list[NDArray]) -> Tensor:
            return torch.from_numpy(np.concatenate(parts)).to(device)

        inputs = LossInputs(
            tensor(datum_of), {n: tensor(v) for n, v in values.items()}, self._loss.config
        )
        return Pairs(tensor(rows), tensor(targets)), inputs, sizes


def _select(x: LossInputs, which: Tensor) -> LossInputs:
    return LossInputs(
        x.datum_P[which], {name: value[which] for name, value in x.values.items()}, x.config
    )


def loss_values(datum: Datum, loss: Loss) -> dict[str, NDArray[np.float32]]:
    """A datum's float inputs for its loss, flat and complete: missing weights are 1, and config
    keys that may come per token are spread over them."""
    tensors = datum.loss_fn_inputs
    size = tensors["target_tokens"].size
    found = {
        entry.name: tensors.get(entry.name, np.ones(size))
        for entry in loss.spec.inputs
        if entry.kind == "f"
    }
    for key, entry in loss.spec.config.items():
        if entry.as_tensor:
            found[key] = tensors.get(key, np.full(size, loss.config[key]))
    return {
        name: np.ascontiguousarray(value, dtype=np.float32).reshape(-1)
        for name, value in found.items()
    }
