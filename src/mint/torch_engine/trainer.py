"""Trainer: the training passes of one base model, advanced together and in bounded turns."""

from collections.abc import Callable, Sequence

from mint.torch_engine.budget import Budget
from mint.torch_engine.decoder import Decoder
from mint.torch_engine.pausable import Pausable
from mint.torch_engine.shared_batch import Failed, Pass, run_batch


class Trainer:
    """One micro-batch is under way at a time; whoever waits when it ends may be in the next."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._batch: Pausable[Failed] | None = None
        self._members: tuple[Pass, ...] = ()

    @property
    def is_halfway(self) -> bool:
        """Whether a micro-batch is under way."""
        return self._batch is not None

    def advance(
        self, passes: Sequence[Pass], budget: Callable[[], Budget], allowance: float
    ) -> tuple[float, Failed]:
        """One turn; returns what it cost in forward tokens, and the passes that failed in it.

        Args:
            passes: those that wait, none done, in order of arrival. Passes of a batch under way
                must be among them.
            budget: asked when a new batch begins.
            allowance: forward tokens after which the turn ends, at the next border of a layer.
        """
        if self._batch is None:
            members, tokens = tuple(passes), budget()
            self._members = members
            self._batch = Pausable(lambda spend: run_batch(self._decoder, members, tokens, spend))
        cost = self._batch.advance(allowance)
        if not self._batch.done:
            return cost, {}
        batch, self._batch = self._batch, None
        members, self._members = self._members, ()  # they hold adapters, which may be unloaded now
        try:
            return cost, batch.result()
        except Exception as error:  # our own bug: nobody knows what of the batch was done
            return cost, dict.fromkeys(members, error)

    def close(self) -> None:
        if self._batch:
            self._batch.abandon()
            self._batch = None
