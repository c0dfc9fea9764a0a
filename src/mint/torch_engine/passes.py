"""PassInParts: data that is computed under one adapter part by part, whatever its loss.

A pass hands out parts; shared_batch runs the model over one or several (of different passes), and
gives each its hidden states back.

Shapes: N datums, T packed tokens of a part, P (position, target) pairs, E model width.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mint.core.model_input import Tokens
from mint.core.operations import PassResult
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.lora import TrainedAdapter
from mint.torch_engine.packing import PackedBatch, pack
from mint.torch_engine.pass_data import PassData
from mint.torch_engine.prefix_tree import PrefixTree, cut, micro_batches, prefix_tree

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
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
    differentiated: bool

    @property
    def tokens(self) -> int:
        """Packed."""
        return len(self.batch.tokens_T)


PartT = TypeVar("PartT", bound=Part)


class PassInParts(ABC, Generic[PartT]):
    """Data that gives no gradient goes first, forward only.

    Args:
        learns_N: bool, which datums give a gradient.
    """

    def __init__(
        self, decoder: Decoder, adapter: TrainedAdapter, data: PassData, learns_N: NDArray[np.bool_]
    ) -> None:
        self.adapter = adapter
        self.data = data
        self.logprobs_P = np.zeros(len(data.targets_P), dtype=np.float32)
        """Known once the pass is done."""
        self._decoder = decoder
        self._waiting = [
            (found.tolist(), learns)
            for learns in (False, True)
            if len(found := np.flatnonzero(learns_N == learns))
        ]
        self._tree: PrefixTree | None = None
        """Of what waits of the next part's kind, once it is asked for."""
        self._cut: tuple[tuple[int, int], list[PrefixTree]] = ((0, 0), [])
        """(how to cut, that tree in micro-batches): sorting and cutting all data again for
        every part would take time that grows with the square of a pass."""
        self._part: tuple[tuple[int, int], PartT] | None = None

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

    @property
    def longest_left(self) -> int:
        """Tokens of the longest datum of this part's kind, which is computed in one piece."""
        return max(len(self.data.inputs[i]) for i in self._waiting[0][0])

    def part(self, token_budget: int, grown: int = 0) -> PartT:
        """The next micro-batch: at most so many packed tokens (`grown`: see prefix_tree.cut), but
        one datum at least. Asking again gives the same; `took` goes on to the one after it."""
        how = token_budget, grown
        if self._part is None or self._part[0] != how:
            batch = pack(self._next(how), self.data.inputs)
            members = np.array(sorted(batch.rows), dtype=np.int64)
            plain = Part(
                batch=batch,
                members=members,
                pairs_P=self.data.pairs_of(members),
                differentiated=self.differentiates,
            )
            self._part = how, self._prepare(plain)
        return self._part[1]

    def took(self, part: PartT, found: Tensor) -> None:
        """Its part is computed: `found` is what `gradient` gave for it."""
        assert self._tree
        assert self._part
        assert self._part[1] is part
        self._note(part, found)
        how, (here, *later) = self._cut
        taken_leaves, leaves = len(here.leaves), len(self._tree.leaves)
        self._tree = self._tree.part(taken_leaves, leaves) if taken_leaves < leaves else None
        self._cut = how, later
        left, wanted = self._waiting[0]
        taken = set(part.members.tolist())
        left = [i for i in left if i not in taken]
        self._waiting[:1] = [(left, wanted)] if left else []
        self._part = None

    def _next(self, how: tuple[int, int]) -> PrefixTree:
        """The leaves of the next part."""
        if self._tree is None:
            self._tree = prefix_tree(self.data.inputs, self._waiting[0][0])
        known, trees = self._cut
        if known != how or not trees:
            trees = cut(self._tree, *how)
            self._cut = how, trees
        return trees[0]

    @abstractmethod
    def gradient(
        self, part: PartT, hidden_TE: Tensor, tick: Callable[[float], None]
    ) -> tuple[Tensor, Tensor | None]:
        """(what is found of each pair, d(loss)/d(hidden) `[T, E]`), the latter None for a part
        without one. The head's adapter gets its gradient added.

        Args:
            tick: told of the rows of the head that were computed, once through for each unit.
        """

    @abstractmethod
    def result(self) -> PassResult:
        """Once it is done."""

    @abstractmethod
    def _prepare(self, part: Part) -> PartT:
        """The part with what the loss needs of it."""

    @abstractmethod
    def _note(self, part: PartT, found: Tensor) -> None:
        """Keep what was found of a part's pairs."""

    def _put(self, values: NDArray) -> Tensor:
        return torch.from_numpy(values).to(self._decoder.device)


def packed(
    inputs: Sequence[Tokens], members: Sequence[int], token_budget: int
) -> list[PackedBatch]:
    """Some of the inputs in micro-batches; `rows` are by index among all inputs."""
    tree = prefix_tree(inputs, members)
    return [pack(part, inputs) for part in micro_batches(tree, token_budget)]
