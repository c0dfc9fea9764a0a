"""Batches whose groups come from several data sets, mixed by weight.

Letters: `K` sources.

What a batch holds depends on the seed and its number alone, so a resumed run goes on with the very
groups it would have seen. Groups of a source come in the source's own order, again from its start
when it is used up.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import chz

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.dataset_utils import ChainedRLDataset, bind
from mint.recipe.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder
from mint.recipe.tasks import run_together


class InterleavedRLDataset(RLDataset):
    """A data set that draws the groups of each batch from several others.

    A source of weight w gets groups_per_batch * w / sum(weights) groups of a batch, rounded down or
    up by chance such that this is the mean (systematic resampling: one uniform number a batch).

    Args:
        sources: data sets of at least one group each.
        weights_K: one per source, above 0.
        groups_per_batch: of every batch.
        total_batches: None: as many as all sources together hold groups for, at least one.
        seed: of the mixture.

    Raises:
        ConfigurationError: the numbers make no sense together.
    """

    def __init__(
        self,
        sources: Sequence[RLDataset],
        weights_K: Sequence[float],
        groups_per_batch: int,
        total_batches: int | None = None,
        seed: int = 0,
    ) -> None:
        _check(len(sources), weights_K, groups_per_batch, total_batches)
        self._streams = [_Stream(source) for source in sources]
        self._quota_K = [w * groups_per_batch / math.fsum(weights_K) for w in weights_K]
        self._groups_per_batch, self._seed = groups_per_batch, seed
        self._total = total_batches
        self._drawn_K: list[list[int]] = [[0] * len(sources)]
        """Row b: how many groups of each source all batches before b hold."""

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """The groups of batch `index`, sources mixed.

        Raises:
            IndexError: there is none.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index}: there are {len(self)}, counted from 0.")
        while len(self._drawn_K) <= index + 1:
            counts_K = self._counts(len(self._drawn_K) - 1)
            self._drawn_K.append([a + b for a, b in zip(self._drawn_K[-1], counts_K, strict=True)])
        groups = [
            stream.group(number)
            for stream, first, last in zip(
                self._streams, self._drawn_K[index], self._drawn_K[index + 1], strict=True
            )
            for number in range(first, last)
        ]
        random.Random(f"{self._seed} {index} order").shuffle(groups)
        return groups

    def __len__(self) -> int:
        if self._total is None:
            held = sum(stream.count() for stream in self._streams)
            self._total = max(1, held // self._groups_per_batch)
        return self._total

    def bind(self, training_client: Any) -> None:
        for stream in self._streams:
            bind(stream.source, training_client)

    def _counts(self, batch: int) -> list[int]:
        shift = random.Random(f"{self._seed} {batch}").random()
        ends = [math.floor(end + shift) for end in accumulate(self._quota_K)]
        ends[-1] = self._groups_per_batch  # floats may sum to a little less
        return [last - first for first, last in pairwise([0, *ends])]


@chz.chz
class InterleavedRLDatasetBuilder(RLDatasetBuilder):
    """Builds an `InterleavedRLDataset` of what its sources build; test sets are strung together."""

    sources: list[RLDatasetBuilder]
    weights: list[float]
    groups_per_batch: int
    total_batches: int | None = None
    seed: int = 0

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        built = await run_together(source() for source in self.sources)
        tests = [test for _, test in built if test is not None]
        mixed = InterleavedRLDataset(
            [train for train, _ in built],
            self.weights,
            self.groups_per_batch,
            self.total_batches,
            self.seed,
        )
        return mixed, ChainedRLDataset(tests) if tests else None


class _Stream:
    """The groups of one source by number, over and over.

    Batches may differ in size, which is only known from the batches themselves; so they are asked
    for in order, up to the one that is needed, and their sizes remembered.
    """

    def __init__(self, source: RLDataset) -> None:
        self.source = source
        self._ends: list[int] = []
        """Groups in the batches up to each, so far as they were looked at."""
        self._latest: tuple[int, Sequence[EnvGroupBuilder]] = (-1, ())

    def group(self, number: int) -> EnvGroupBuilder:
        known = self._ends[-1] if self._ends else 0
        while number >= known and len(self._ends) < len(self.source):
            known += len(self._batch(len(self._ends)))
            self._ends.append(known)
        if not known:
            raise ConfigurationError(
                f"a source ({type(self.source).__name__}) has no groups. Leave it out, or give it "
                "some."
            )
        number %= known
        batch = bisect_right(self._ends, number)
        return self._batch(batch)[number - (self._ends[batch - 1] if batch else 0)]

    def count(self) -> int:
        """Groups of the source, taking its batches to be as large as the first."""
        batches = len(self.source)
        return batches * len(self._batch(0)) if batches else 0

    def _batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        if self._latest[0] != index:
            self._latest = (index, self.source.get_batch(index))
        return self._latest[1]


def _check(
    count: int, weights_K: Sequence[float], groups_per_batch: int, total_batches: int | None
) -> None:
    if count == 0 or count != len(weights_K):
        raise ConfigurationError(
            f"{count} sources and {len(weights_K)} weights: give one weight per source, and a source."
        )
    if not all(math.isfinite(weight) and weight > 0 for weight in weights_K):
        raise ConfigurationError(f"weights={list(weights_K)}: each has to be above 0.")
    if groups_per_batch < 1 or (total_batches is not None and total_batches < 1):
        raise ConfigurationError(
            f"groups_per_batch={groups_per_batch}, total_batches={total_batches}: give 1 or more."
        )
