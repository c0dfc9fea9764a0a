"""What sampling asks of a store of keys and values, whatever way it lays them out.

Two layouts keep this promise: contiguous_store (each text lies in one piece) and paged_store (texts
lie in pages, found by a block table). kv_layouts chooses one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

from mint.torch_engine.attention import AttentionPlan
from mint.torch_engine.prefix_blocks import BlockNames, Key


@dataclass(frozen=True, kw_only=True)
class KvShape:
    """What one token's keys and values look like in this model."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device


class KvText(Protocol):
    """Keys and values of one prompt, or of what one sequence says after its prompt.

    Attributes:
        room: tokens that are set aside for it; a prompt's is its length.
        used: its first tokens whose keys and values are there.
    """

    room: int
    used: int


TextT = TypeVar("TextT", bound=KvText)
PlaceT = TypeVar("PlaceT")


@dataclass(frozen=True)
class Piece(Generic[PlaceT]):
    """The next tokens of one prompt or continuation: those from `start` to `stop` of it.

    Attributes:
        text: whose; a KvText, or where a layout has put it.
        donor: what `KvStore.share` returned: who has those of its first `start` tokens that it
            lacks, if only once an earlier piece of the same slice is computed.
    """

    text: PlaceT
    start: int
    stop: int
    donor: PlaceT | None = None


class KvStore(Protocol[TextT]):
    """Texts and the budget they live in, and blocks of texts that have ended, for those that begin
    alike. What is only kept for later never stands in the way of who runs.

    Whatever takes room answers None or False, and has done nothing, where there is none. It may
    raise torch's out of memory; nothing is taken then either.
    """

    @property
    def names(self) -> BlockNames:
        """How blocks are called, by which what is kept for later is found."""
        ...

    @property
    def tokens(self) -> int:
        """The budget."""
        ...

    @property
    def longest(self) -> int:
        """Tokens of prompt and continuation together that are sure to fit when all others left."""
        ...

    @property
    def reserved(self) -> int:
        """Tokens of the budget that are taken: by texts, and by blocks kept for later."""
        ...

    @property
    def cached_tokens(self) -> int:
        """Those that are only kept for later."""
        ...

    @property
    def nbytes(self) -> int: ...

    # ------------------------------------------------------------------- texts

    def new_prompt(
        self, tokens: int, keys: Sequence[Key], *, then: int, spare: int
    ) -> TextT | None:
        """Room for a prompt, if `then` tokens of a continuation fit as well and `spare` more stay
        free after that."""
        ...

    def new_continuation(
        self, prompt: TextT, room: int, *, again: int = 0, keys: Sequence[Key] = (), spare: int
    ) -> TextT | None:
        """Room for what a sequence says, if `spare` more tokens stay free.

        Args:
            again: so many tokens it has said before, which are prefilled.
            keys: names of the blocks of prompt and continuation up to there.
        """
        ...

    def grow(self, text: TextT, most: int) -> bool:
        """Some more room for a continuation that has used its own, `most` tokens in all at most."""
        ...

    def fill(self, text: TextT, keys: Sequence[Key], stop: int) -> None:
        """What is cached of a text becomes part of it, up to its token `stop`. Before its first piece."""
        ...

    def shareable(self, blocks: int, there: int) -> int:
        """How many first tokens a prompt can have of another, if so many blocks are the same and
        that one has `there` tokens, be it only after the slice that is being planned."""
        ...

    def share(self, text: TextT, donor: TextT, tokens: int) -> TextT | None:
        """A prompt begins with so many tokens of another. Returns the donor of its next piece."""
        ...

    def go_on(self, text: TextT) -> None:
        """A continuation that was prefilled takes part in decode steps from now on."""
        ...

    def close(self, text: TextT, keys: Sequence[Key]) -> None:
        """Give a text's room back. Its whole blocks are kept for later, as far as they may be; their
        names are `keys`."""
        ...

    # ------------------------------------------------------------------- plans

    def prefill_plan(self, pieces: Sequence[Piece[TextT]]) -> AttentionPlan:
        """Pieces of several texts, packed: each attends to the earlier tokens of its own text."""
        ...

    def decode_plan(self, texts: Sequence[TextT]) -> AttentionPlan:
        """One more token of each running sequence: row b writes to `texts[b]` and attends to that and
        to its prompt. All continuations that take part in decode steps must be among them."""
        ...

    # ------------------------------------------------------- what is kept for later

    def give_up(self, size_bytes: int) -> None:
        """Forget so much of what is only kept for later, or all of it, for who needs the memory."""
        ...

    def clear(self) -> None:
        """Forget all of it."""
        ...
