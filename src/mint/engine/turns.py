"""Whose turn it is on one device: sources of work alternate by what they have computed. Pure.

The rule is start-time fair queueing. A source has a tag; the waiting source with the lowest has the
next turn, and a turn of c tokens moves its tag on by c / weight. A source that had nothing to do
comes back at the present virtual time: it saves up nothing.

What follows, for sources a and b that both wait, with turns of at most c_a and c_b tokens: over any
stretch of time, what they compute (W) is in proportion to their weights (w) but for a turn of each,

    |W_a / w_a - W_b / w_b| <= c_a / w_a + c_b / w_b.

With turns of equal c / w, as `allowance` makes those of training, at most two turns of one lie
between two turns of the other, and in the long run one. A third source adds its own turns.

Source: Goyal, Vin & Cheng 1996, "Start-time fair queuing", SIGCOMM '96, theorem 1.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

DECODE_ROWS = 16
"""A decode round of fewer rows costs as much: it reads all weights whatever the rows, and computing
takes over from reading near 11 rows on the CPU that was measured."""


@dataclass(frozen=True)
class Source:
    """Who may wait for a turn."""

    name: Hashable
    weight: float = 1.0
    """Its share of the device, against the weights of the others that wait."""


@dataclass(frozen=True)
class Turns:
    """Who has computed how much. Tags and `now` are in forward tokens over weight."""

    tags: Mapping[Hashable, float] = field(default_factory=dict)
    """Of sources ahead of `now`; all others are at it."""
    now: float = 0.0

    def next(self, waiting: Iterable[Source]) -> Source:
        """The source whose turn it is; among equals the first. `waiting` is not empty."""
        return min(waiting, key=self._tag)

    def charged(self, source: Source, tokens: float) -> "Turns":
        """After a turn of the source that `next` named."""
        now = self._tag(source)
        tags = {name: tag for name, tag in self.tags.items() if tag > now}
        tags[source.name] = now + tokens / source.weight
        return Turns(tags, now)

    def _tag(self, source: Source) -> float:
        return max(self.tags.get(source.name, 0.0), self.now)


def round_cost(rows: int, prefilled: int = 0) -> float:
    """Of one decode round, in forward tokens: the rows that got a token, and prompt tokens."""
    return (max(rows, DECODE_ROWS) if rows else 0) + prefilled


def allowance(training: Source, sampling: Source, round_tokens: float) -> float:
    """Forward tokens of a training turn while sequences are decoded: as many as the last decode
    round took, weighed. With equal weights two tokens of a sequence are two rounds apart: its own,
    and as much of training."""
    return round_tokens * training.weight / sampling.weight
