"""PassData: what a training pass brings, flat, so that a micro-batch is an indexing of it.

Shapes: N datums, P (position, target) pairs of all datums, one datum after the other; with soft
targets a position has several.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mint.core.datum import Datum
from mint.core.losses import Loss
from mint.core.model_input import Tokens

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PassData:
    """Inputs and loss inputs of a pass.

    Attributes:
        inputs: the tokens that each datum's model reads.
        shapes: of each datum's target_tokens: (n,) or (n, k).
        starts_N, sizes_N: where a datum's pairs begin, and how many it has.
        values: float32 `[P]` by name, for every float input that the loss has: missing weights are
            1, and config keys that may come per token are spread over them.
    """

    inputs: tuple[Tokens, ...]
    shapes: tuple[tuple[int, ...], ...]
    starts_N: Ints
    sizes_N: Ints
    targets_P: Ints
    values: Mapping[str, Floats]

    @classmethod
    def of(cls, data: Sequence[Datum], inputs: tuple[Tokens, ...], loss: Loss) -> "PassData":
        """Flatten data that check_pass has let through."""
        targets = [datum.loss_fn_inputs["target_tokens"] for datum in data]
        sizes_N = np.array([target.size for target in targets], dtype=np.int64)
        defaults = {entry.name: 1.0 for entry in loss.spec.inputs if entry.kind == "f"}
        defaults |= {k: loss.config[k] for k, entry in loss.spec.config.items() if entry.as_tensor}
        return cls(
            inputs,
            tuple(target.shape for target in targets),
            np.cumsum(sizes_N) - sizes_N,
            sizes_N,
            np.concatenate([target.reshape(-1) for target in targets]).astype(np.int64, copy=False),
            {name: _flat(data, name, sizes_N, value) for name, value in defaults.items()},
        )

    def pairs_of(self, members: Ints) -> Ints:
        """Indices of the pairs of some datums, one datum after the other."""
        sizes = self.sizes_N[members]
        ends = np.cumsum(sizes)
        return np.arange(ends[-1]) + np.repeat(self.starts_N[members] - ends + sizes, sizes)

    def targets_per_position(self, members: Ints) -> Ints:
        """For each position of some datums, how many targets it has."""
        lengths = np.array([len(self.inputs[i]) for i in members])
        return np.repeat(self.sizes_N[members] // lengths, lengths)

    def any_of(self, is_so_P: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool `[N]`: whether it is so of any pair of a datum."""
        return np.logical_or.reduceat(is_so_P, self.starts_N)

    def split(self, values_P: Floats) -> tuple[Floats, ...]:
        """Back from pairs to datums, each in the shape of its targets."""
        parts = np.split(values_P, self.starts_N[1:])
        return tuple(p.reshape(shape) for p, shape in zip(parts, self.shapes, strict=True))


def _flat(data: Sequence[Datum], name: str, sizes_N: Ints, default: float) -> Floats:
    """One input of all datums; `default` where a datum does not have it."""
    given = [datum.loss_fn_inputs.get(name) for datum in data]
    if all(value is None for value in given):
        return np.full(int(sizes_N.sum()), default, dtype=np.float32)
    return np.concatenate(
        [
            np.full(size, default, dtype=np.float32) if value is None else value.reshape(-1)
            for value, size in zip(given, sizes_N, strict=True)
        ]
    ).astype(np.float32, copy=False)
