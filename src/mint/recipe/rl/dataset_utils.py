"""Data sets made of other data sets."""

import random
from collections.abc import Sequence
from typing import Any

from mint.recipe.exceptions import ConfigurationError
from mint.recipe.rl.types import EnvGroupBuilder, RLDataset


def bind(dataset: RLDataset, training_client: Any) -> None:
    """Tell a data set whose weights are trained; one that is an RLDataset by its methods alone may
    have no ear for it."""
    listen = getattr(dataset, "bind", None)
    if listen is not None:
        listen(training_client)


class EpochCycledRLDataset(RLDataset):
    """The batches of a data set, several times over.

    Args:
        inner: whose batches they are.
        num_epochs: how many times.
        shuffle_seed: None leaves the order as it is. Otherwise each epoch visits the batches in an
            order of its own, which depends on seed and epoch alone: a run that is resumed sees the
            rest of the same order.

    Raises:
        ConfigurationError: fewer than one epoch.
    """

    def __init__(self, inner: RLDataset, num_epochs: int, shuffle_seed: int | None = None) -> None:
        if num_epochs < 1:
            raise ConfigurationError(f"num_epochs={num_epochs}: give 1 or more.")
        self._inner, self._num_epochs, self._seed = inner, num_epochs, shuffle_seed
        self._order: tuple[int, Sequence[int]] = (-1, ())
        """Epoch, and its order: the latest that was asked for."""

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """Batch `index` of all epochs.

        Raises:
            IndexError: there is none.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index}: there are {len(self)}, counted from 0.")
        epoch, place = divmod(index, len(self._inner))
        return self._inner.get_batch(self._order_of(epoch)[place])

    def __len__(self) -> int:
        return self._num_epochs * len(self._inner)

    def bind(self, training_client: Any) -> None:
        bind(self._inner, training_client)

    def _order_of(self, epoch: int) -> Sequence[int]:
        if self._seed is None:
            return range(len(self._inner))
        if self._order[0] != epoch:
            order = list(range(len(self._inner)))
            random.Random(f"{self._seed} {epoch}").shuffle(order)
            self._order = (epoch, order)
        return self._order[1]


class ChainedRLDataset(RLDataset):
    """The batches of several data sets, one data set after the other."""

    def __init__(self, parts: Sequence[RLDataset]) -> None:
        self._parts = list(parts)

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """Batch `index`, counted over all parts.

        Raises:
            IndexError: there is none.
        """
        left = index
        for part in self._parts:
            if 0 <= left < len(part):
                return part.get_batch(left)
            left -= len(part)
        raise IndexError(f"batch {index}: there are {len(self)}, counted from 0.")

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def bind(self, training_client: Any) -> None:
        for part in self._parts:
            bind(part, training_client)
