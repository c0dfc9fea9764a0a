"""Which operations may start, by what came before them."""

from collections.abc import Iterable

from mint.core.operations import PASSES
from mint.server.store.records import PendingOperation

MERGEABLE = PASSES
"""Gradients add up, so passes of one model in a row may run side by side."""
PIN = "PinSampler"
RELEASE = "ReleaseSampler"
SAMPLE = "Sample"


def startable(
    pending: Iterable[PendingOperation], running: Iterable[PendingOperation]
) -> list[PendingOperation]:
    """The pending operations that may start now, in order of arrival.

    Arrival is program order: the SDK sends a call once the one before is acknowledged; seq_id
    cannot serve, since a call that was never sent leaves a hole in it. Of one model an operation
    waits for all earlier ones, except passes that follow passes. A sample waits until the weights
    of its sampler are pinned; their release waits for the sampler's earlier samples. All else is
    independent.

    Args:
        pending: in order of arrival.
        running: handed to the engine and not ended.
    """
    rules = _Before()
    for operation in running:
        rules.add(operation)
    free = []
    for operation in pending:
        if not rules.hold(operation):
            free.append(operation)
        rules.add(operation)
    return free


class _Before:
    """What has arrived and not ended before the operation in hand."""

    def __init__(self) -> None:
        self._kinds_of_model: dict[str, set[str]] = {}
        self._kinds_of_sampler: dict[str, set[str]] = {}

    def add(self, operation: PendingOperation) -> None:
        if operation.model_id and operation.kind != SAMPLE:
            self._kinds_of_model.setdefault(operation.model_id, set()).add(operation.kind)
        if operation.sampler_id:
            self._kinds_of_sampler.setdefault(operation.sampler_id, set()).add(operation.kind)

    def hold(self, operation: PendingOperation) -> bool:
        sampler = self._kinds_of_sampler.get(operation.sampler_id or "", set())
        if operation.kind == SAMPLE:
            return not sampler.isdisjoint({PIN, RELEASE})
        if operation.kind == RELEASE:
            return bool(sampler)
        model = self._kinds_of_model.get(operation.model_id or "", set())
        return bool(model.difference(MERGEABLE) if operation.kind in MERGEABLE else model)
