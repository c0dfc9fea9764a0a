"""The losses, one file each, by their names in core.losses.

Every function returns the loss of each position, `[P]`; the pass sums them. Shapes: P positions
(with soft targets: position x target), all datums of a micro-batch one after the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mint.torch_engine.losses.cispo import cispo
from mint.torch_engine.losses.cross_entropy import cross_entropy
from mint.torch_engine.losses.dro import dro
from mint.torch_engine.losses.gspo import gspo
from mint.torch_engine.losses.importance_sampling import importance_sampling
from mint.torch_engine.losses.ppo import ppo


@dataclass(frozen=True, eq=False)
class LossInputs:
    """A micro-batch's tensors besides the logprobs. Those a loss does not use are absent.

    Attributes:
        datum_P: which datum of the micro-batch a position belongs to, int64.
        values: float32 `[P]` per input name; clip thresholds are always per position.
    """

    datum_P: Tensor
    values: Mapping[str, Tensor]
    config: Mapping[str, float]

    def __getitem__(self, name: str) -> Tensor:
        return self.values[name]


@dataclass(frozen=True)
class TorchLoss:
    """A loss as the pass uses it."""

    per_position: Callable[[Tensor, LossInputs], Tensor]
    """(logp_P, inputs) -> loss_P."""
    weight: str | None
    """The input whose zeros give no gradient; None: every position gives one."""
    elementwise: bool = True
    """loss[i] depends on logp[i] only, so it may be differentiated chunk by chunk."""

    def active(self, inputs: LossInputs) -> Tensor:
        """bool `[P]`: positions that can give a gradient."""
        if self.weight is None:
            return torch.ones_like(inputs.datum_P, dtype=torch.bool)
        return inputs[self.weight] != 0


def _policy(x: LossInputs) -> tuple[Tensor, Tensor]:
    return x["logprobs"], x["advantages"]


def _clip(x: LossInputs) -> tuple[Tensor, Tensor]:
    return x["clip_low_threshold"], x["clip_high_threshold"]


TORCH_LOSSES: Mapping[str, TorchLoss] = {
    "cross_entropy": TorchLoss(lambda p, x: cross_entropy(p, x["weights"]), "weights"),
    "importance_sampling": TorchLoss(
        lambda p, x: importance_sampling(p, *_policy(x)), "advantages"
    ),
    "ppo": TorchLoss(lambda p, x: ppo(p, *_policy(x), *_clip(x)), "advantages"),
    "cispo": TorchLoss(lambda p, x: cispo(p, *_policy(x), *_clip(x)), "advantages"),
    "dro": TorchLoss(lambda p, x: dro(p, *_policy(x), x.config["beta"]), None),
    "gspo": TorchLoss(
        lambda p, x: gspo(p, *_policy(x), x.datum_P, *_clip(x)), "advantages", elementwise=False
    ),
}
