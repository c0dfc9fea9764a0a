"""Whose turn it is: the owner who was served the fewest tokens, then their lane that was."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mint.server.store.records import PendingOperation

Lane = tuple[str, str]
"""(owner, model or sampler): what takes turns. (owner, "") counts the owner."""
Served = Mapping[Lane, int]
"""Tokens handed to the engine so far, per lane and per owner."""


def lane(operation: PendingOperation) -> Lane:
    return operation.owner, operation.model_id or operation.sampler_id or operation.kind


@dataclass(frozen=True)
class Turns:
    """Who goes first, and the counters after they have gone."""

    order: tuple[PendingOperation, ...]
    served: Served


def take_turns(
    waiting: Iterable[PendingOperation],
    running: Iterable[PendingOperation],
    served: Served,
    most: int,
) -> Turns:
    """Choose up to `most` operations, so that owners and, within one, lanes get equal tokens.

    Each choice takes the owner with the fewest tokens served, of theirs the lane with the fewest,
    and of that the earliest operation; ties go by arrival. Nobody starves: whoever waits keeps
    their count while the others' grow. Counters of those with nothing waiting or running are
    dropped, and who comes (back) starts level with the least served one present, neither in debt
    nor with savings.

    Args:
        waiting: may start now; in order of arrival.
        running: count as present.
    """
    queues: dict[str, dict[Lane, deque[PendingOperation]]] = {}
    for operation in waiting:
        queues.setdefault(operation.owner, {}).setdefault(lane(operation), deque()).append(
            operation
        )
    present = [lane(operation) for operation in running]
    present += [key for lanes in queues.values() for key in lanes]
    counts = _level(served, present)

    order: list[PendingOperation] = []
    while queues and len(order) < most:
        owner = min(queues, key=lambda name: (counts[name, ""], _first(queues[name])))
        lanes = queues[owner]
        key = min(lanes, key=lambda one: (counts[one], lanes[one][0].arrival))
        operation = lanes[key].popleft()
        order.append(operation)
        for counter in (key, (owner, "")):
            counts[counter] += max(1, operation.tokens)
        if not lanes[key]:
            del lanes[key]
        if not lanes:
            del queues[owner]
    return Turns(tuple(order), counts)


def _first(lanes: Mapping[Lane, deque[PendingOperation]]) -> int:
    return min(queue[0].arrival for queue in lanes.values())


def _level(served: Served, present: Iterable[Lane]) -> dict[Lane, int]:
    """Counters of those present; newcomers get the least one of their peers."""
    lanes = set(present)
    owners = {(owner, "") for owner, _ in lanes}
    counts = {key: served[key] for key in lanes | owners if key in served}
    least_owner = min((counts[key] for key in owners if key in counts), default=0)
    for owner, _ in owners:
        peers = [key for key in lanes if key[0] == owner]
        least = min((counts[key] for key in peers if key in counts), default=0)
        counts.setdefault((owner, ""), least_owner)
        for key in peers:
            counts.setdefault(key, least)
    return counts
