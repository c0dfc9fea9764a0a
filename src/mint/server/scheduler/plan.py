"""What to hand to the engine now."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mint.core.ids import OperationId
from mint.server.scheduler.fairness import Served, take_turns
from mint.server.scheduler.order import MERGEABLE, SAMPLE, startable
from mint.server.store.records import PendingOperation


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much may be inside the engine at once. What is outside can still be reordered."""

    samples: int = 64
    """As many sampling requests as sequences decode side by side: each has one or more, so the
    engine never lacks work, and a newcomer waits behind no more than these."""
    passes_of_a_model: int = 16
    """Gradient passes of one model handed over together; their data is in memory."""
    others: int = 64
    """Everything else: at most one per model runs anyway."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    start: tuple[OperationId, ...]
    served: Served
    """Fairness counters after these have started."""


def plan(
    pending: Sequence[PendingOperation],
    running: Sequence[PendingOperation],
    served: Served,
    limits: Limits,
) -> Plan:
    """Choose what starts now.

    Sampling and training have limits of their own, so that neither fills the engine for the other.

    Args:
        pending: in order of arrival.
        running: handed to the engine and not ended.
        served: as the plan before gave it; empty at first.
    """
    free = startable(pending, running)
    samples = [operation for operation in free if operation.kind == SAMPLE]
    others = _few_passes(free, running, limits.passes_of_a_model)
    running_samples = sum(operation.kind == SAMPLE for operation in running)
    running_others = len(running) - running_samples

    first = take_turns(others, [*running, *samples], served, max(0, limits.others - running_others))
    second = take_turns(
        samples, [*running, *others], first.served, max(0, limits.samples - running_samples)
    )
    chosen = sorted((*first.order, *second.order), key=lambda operation: operation.arrival)
    return Plan(start=tuple(operation.operation_id for operation in chosen), served=second.served)


def _few_passes(
    free: Sequence[PendingOperation], running: Sequence[PendingOperation], most: int
) -> list[PendingOperation]:
    """What is not sampling, with no more than `most` passes of a model, running ones counted."""
    passes = Counter(op.model_id for op in running if op.kind in MERGEABLE)
    kept = []
    for operation in free:
        if operation.kind == SAMPLE:
            continue
        if operation.kind in MERGEABLE:
            if passes[operation.model_id] >= most:
                continue
            passes[operation.model_id] += 1
        kept.append(operation)
    return kept
